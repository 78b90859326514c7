"""Amazon Berkeley Objects: sampled from its metadata, fetched from S3 with every byte checked."""
