"""``python -m orca_embedded.demo``: the whole path once, and a bill that can be checked by hand."""
