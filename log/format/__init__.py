"""What lies on disk and in stores: columns of records, packs, runs, segments. Frozen."""
