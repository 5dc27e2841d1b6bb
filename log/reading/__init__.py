"""The feed of a collection, over its brokers or over the store of its cluster."""
