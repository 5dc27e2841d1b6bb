"""A change feed processor for Python."""
