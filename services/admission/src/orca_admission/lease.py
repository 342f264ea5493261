"""Token leases: the part of a token hold that the probe may spend without asking."""

from __future__ import annotations

LEASE_CHUNK_TOKENS = 100_000
"""What is handed out at a time: enough that a probe asks rarely, little enough that a lost node
cannot have spent much unseen. It bounds both the traffic and the overrun."""


def first_grant(held: int, limited: bool) -> int | None:
    """The lease at reservation; None: neither the task nor the namespace limits tokens."""
    if not held and not limited:
        return None
    return min(held, LEASE_CHUNK_TOKENS)


def next_grant(held: int, granted: int, used: int) -> int:
    """The absolute lease after a top-up: a chunk beyond what was granted or used, within held."""
    return min(held, max(granted, used) + LEASE_CHUNK_TOKENS)
