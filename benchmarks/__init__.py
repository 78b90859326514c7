"""Benchmarks beside the experiments: the fetcher against awscli, and what `recipe=fast` chose between."""
