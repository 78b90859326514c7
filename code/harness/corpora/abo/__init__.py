"""Amazon Berkeley Objects from S3: which images, fetching them, packing them."""
