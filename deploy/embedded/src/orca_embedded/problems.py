"""What keeps the stack from running: one clear line that says what to do."""

from __future__ import annotations

EX_UNAVAILABLE = 69
EX_CONFIG = 78


class StackProblem(Exception):  # noqa: N818 - what a person reads is a problem, not an error
    """A problem with the machine or the settings; ``exit_code`` follows sysexits.h."""

    def __init__(self, text: str, exit_code: int = EX_CONFIG) -> None:
        super().__init__(text)
        self.exit_code = exit_code
