"""`wallclock serve`: a worker that takes image URLs from a queue and sends results to callbacks."""
