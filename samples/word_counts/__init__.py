"""Counting words, and writing the counts down now and then: checkpoints by hand."""
