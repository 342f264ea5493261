"""The base of every value and event: frozen, closed, strict."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from orca_schemas.subjects import Kind, Role


class Value(BaseModel):
    """A frozen value. Extra fields are refused, and ``"5"``, ``5.0`` or ``true`` is no integer."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_enum_values=False
    )


def _is_none(value: object) -> bool:
    return value is None


def omitted() -> Any:
    """The default of an optional field that is left out of the bytes when it is None.

    Everything else is always written, null included: an event says all that it says.
    """
    return Field(default=None, exclude_if=_is_none)


class EventData(Value):
    """The data of one event. The class name is the event's name; a change adds VERSION + 1."""

    ROLE: ClassVar[Role | None] = None
    """Who may say it; None for what every decider says."""
    KIND: ClassVar[Kind | None] = Kind.TASK
    """What it is about; None where it is about whatever its cause was about."""
    VERSION: ClassVar[int] = 1

    @classmethod
    def type_name(cls) -> str:
        """The CloudEvents type: ``orca.<Event>.v<N>``."""
        return f"orca.{cls.__name__}.v{cls.VERSION}"
