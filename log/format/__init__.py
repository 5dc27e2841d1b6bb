"""The formats of files and objects: columns of records, packs, runs and segments. Frozen."""
