"""What every test of the workspace relies on."""

from __future__ import annotations

import signal

# Whoever starts the tests in the background may have had Ctrl-C ignored; children inherit that,
# and a program that is to end on Ctrl-C would then never hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
