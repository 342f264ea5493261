"""Every event of the log, version 1, one module per role."""
