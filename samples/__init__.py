"""Small complete programs over the project, each run by a test. README.md lists them."""
