"""Times that two services must agree on: what one may conclude, the other has made true."""

from __future__ import annotations

LEASE_TTL_MS = 30_000
"""A node that was silent for so long is lost; so long after its last renewal a node may go on
running what may be requeued elsewhere."""
STOP_GRACE_MS = 10_000
"""Between SIGTERM and SIGKILL."""
LOSS_MARGIN_MS = 5_000
"""What a watchdog on the lost node may be late."""
