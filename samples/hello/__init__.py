"""The smallest program: a function that greets whoever is new."""
