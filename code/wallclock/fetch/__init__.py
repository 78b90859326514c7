"""An image's bytes, from wherever they are: paths, URLs, buckets, memory."""
