"""The log in a directory of this machine: one process writes it, any number read it."""
