"""Brokers: the event log served by many machines over one place in an object store.

The store keeps every acknowledged byte, and its create-if-absent decides every race; brokers
hold no state that matters. See docs/design/event-log.md.
"""
