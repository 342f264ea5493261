"""Decides whether a task may run: the quota ledger."""
