"""Speed of the loader, of jobs and of the trace, beside the experiments; a command each."""
