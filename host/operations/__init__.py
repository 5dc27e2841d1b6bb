"""What operators do to a fleet from outside, for commands and for the page."""
