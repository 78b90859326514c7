"""wallclock: where an image-embedding job really spends its time."""

__version__ = "0.1.0"
