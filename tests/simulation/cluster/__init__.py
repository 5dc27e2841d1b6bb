"""A cluster of brokers in virtual time, over a store and a network that misbehave."""
