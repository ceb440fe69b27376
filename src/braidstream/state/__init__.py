"""What is kept: manifests, segments, compaction and retention, over any file system that pyarrow reaches. No Spark."""
