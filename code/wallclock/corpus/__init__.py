"""Corpora: pinned lists of images, from a generator, from a folder, or (later) from S3."""
