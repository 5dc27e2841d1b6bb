"""The way to brokers over HTTP: for readers, producers and commands."""
