"""Where a job runs: in this process, or on a cluster."""
