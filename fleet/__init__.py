"""What people see of a fleet, and do to it: its status, a doctor, and their operations."""
