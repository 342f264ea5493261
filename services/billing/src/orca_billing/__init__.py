"""Prices each accepted record and charges it once."""
