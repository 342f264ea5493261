"""The deterministic simulation: the real deciders and shell, everything around them simulated.

One integer, the seed, decides all that happens. ``python -m tests.simulation --seeds 100``.
"""
