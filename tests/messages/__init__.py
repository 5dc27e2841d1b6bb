"""The sentences of errors, in one reviewed table: ``tests/messages/messages.md``.

A case is a cause and a function that raises, or returns, what is said of it. ``python -m
tests.messages`` writes the table anew; ``test_messages`` compares. So whoever changes a
sentence sees it in one diff, beside all others, and no other test pins it: those assert the
class of an error, and the fact that its reader needs.
"""
