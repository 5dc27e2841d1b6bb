"""One worker for each lease that the host owns: reading, delivering, checkpointing."""
