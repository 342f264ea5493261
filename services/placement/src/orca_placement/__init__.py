"""Decides where a task runs and speaks to the nodes."""
