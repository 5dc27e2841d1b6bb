"""Seeded simulation of a whole fleet: the real host code, in virtual time.

A seed decides everything: how many hosts and ranges, their settings, what is written, and
what goes wrong. ``world`` tells the story, ``network`` and ``loop`` are what misbehaves,
``checkers`` knows what must hold whatever happens. One seed again:
``make simulate SEED=<n>``.
"""
