"""Where the files of a dataset are: a folder, or a bucket, which has the methods of a folder."""
