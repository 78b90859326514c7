"""The rungs of a queue-driven service: from one thread to the service itself."""
