"""Clients that we did not write: Azure's own, for Java, Node and Python.

They run against the emulator, or against the account that CHANGEFEED_COSMOS_ENDPOINT and
CHANGEFEED_COSMOS_KEY name. Each works in databases of its own, and deletes them.
"""
