"""What hosts and pipelines have in common: settings, logs, telemetry, exit codes."""
