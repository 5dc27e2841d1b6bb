"""How commands read changes and print them: JSON lines, and blocks for the event log."""
