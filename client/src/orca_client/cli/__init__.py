"""The orca command: one module per group of commands."""
