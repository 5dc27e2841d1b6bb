"""Deliberate breaks of the code, and a proof that the tests notice each: ``make mutants``.

A mutant is one rule of the design taken out of one file: no version check, no fence, a
lease released before the observer is done. It is applied to a copy of the tree, and the
tests that are there for that rule must fail. ``catalogue`` holds the mutants, ``running``
applies them.

Limits: the list was made by hand, rule by rule. What it does not break is not shown to be
tested; and a mutant that is killed shows that *some* test looks at the rule, not that all
of the rule is tested.
"""
