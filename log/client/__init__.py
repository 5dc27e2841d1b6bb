"""The HTTP client of brokers, with its feed and its producer."""
