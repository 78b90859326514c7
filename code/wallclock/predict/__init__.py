"""Images per second from costs, and what would make a job faster: no torch, no files."""
