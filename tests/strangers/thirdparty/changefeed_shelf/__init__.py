"""A feed in a file of JSON lines, and leases in a directory of JSON files."""
