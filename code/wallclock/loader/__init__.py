"""Images to batches: checked, decoded and resized by threads, into buffers that are reused."""
