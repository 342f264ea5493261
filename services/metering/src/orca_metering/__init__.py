"""Accepts each usage record once and settles totals."""
