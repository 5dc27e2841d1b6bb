"""Reading what was written: the objects of a row, and what they became."""
