"""Records in a SQLite file: any number of host processes on one machine."""
