"""The process: membership, balancing, supervision, CLI, web, telemetry."""
