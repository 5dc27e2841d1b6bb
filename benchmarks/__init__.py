"""What is measured, and against what: ``python -m benchmarks``, which is ``make bench``.

One module for each subject, with a function that measures and returns results; they are
listed in ``registry``. A ratio is always between two things measured in the same run, one
right after the other, because a machine that others use too is never the same twice.
``docs/benchmarks.md`` says how each is measured, and shows numbers.
"""
