"""Benchmarks that compare with other tools; `make bench-fetch`."""
