"""What runs in the background of a log: compaction and retention."""
