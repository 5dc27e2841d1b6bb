"""Deliberate breaks of the code, and a proof that the tests notice each: ``make mutants``.

The curated ones are one rule of the design each, taken out of the object that keeps it; they
are listed by rule in ``expiring``, ``planning``, ``fencing``, ``handling`` and ``delivering``.
``make mutants PATHS=host`` makes small breaks by rule instead, drawn from the functions
of some folders (``generated``), and runs the tests that enter these functions (``covering``).
Both kinds are made in forks of one process that has collected the tests once (``forks``).

Limits: a mutant that is killed shows that *some* test looks at what it breaks, not that all
of it is tested.
"""
