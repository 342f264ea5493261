"""Makes one host match its desired state and counts what ran."""
