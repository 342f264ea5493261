"""Faults at seeded moments on the real stack under load, and the verdict after them."""
