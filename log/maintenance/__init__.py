"""What a log needs in the background: compaction, and the deletion of what it keeps no more."""
