"""Corpora: pinned lists of images, from a generator, from a folder, or from S3."""
