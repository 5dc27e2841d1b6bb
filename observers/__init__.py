"""What happens to changes."""
