"""Reading rows: their objects, and the runs and segments that compaction made of them."""
