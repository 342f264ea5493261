"""What every decider may say."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from orca_schemas.events.admin import PriceTier
from orca_schemas.identifiers import Label
from orca_schemas.model import EventData, Value
from orca_schemas.positions import PositionText
from orca_schemas.spec import TaskSpec
from orca_schemas.subjects import Kind
from orca_schemas.units import Amount, UnixMs
from orca_schemas.values import Dimension, Fault, MeterEnd, Period, Text


class NothingNoted(Value):
    """The input changes nothing here."""

    kind: Literal["nothing"] = "nothing"


class NamespaceNoted(Value):
    """A namespace is known from here on."""

    kind: Literal["namespace"] = "namespace"
    admins: tuple[Label, ...]


class LimitNoted(Value):
    """A limit is in force from here on."""

    kind: Literal["limit"] = "limit"
    account: Label
    dimension: Dimension
    period: Period
    limit: Amount | None


class PriceNoted(Value):
    """A price version is in the book from here on. ``version`` is its position in ADMIN."""

    kind: Literal["price"] = "price"
    version: PositionText
    sku: str
    tiers: tuple[PriceTier, ...]
    effective_at_ms: UnixMs


class RunNoted(Value):
    """A run that another service began, with what this one needs of it."""

    kind: Literal["run"] = "run"
    run_id: UUID
    spec: TaskSpec
    granted_tokens: Amount | None = None


class AttemptNoted(Value):
    """An attempt that placement began."""

    kind: Literal["attempt"] = "attempt"
    run_id: UUID
    attempt: Amount
    node: Label
    fence: PositionText


class EndNoted(Value):
    """An attempt that placement saw end, and where its meters stood."""

    kind: Literal["end"] = "end"
    run_id: UUID
    attempt: Amount
    node: Label | None
    used: tuple[MeterEnd, ...]
    last: bool


class StartNoted(Value):
    """A node reports that an attempt runs."""

    kind: Literal["start"] = "start"
    run_id: UUID
    attempt: Amount
    started_at_ms: UnixMs


class RescanNoted(Value):
    """A decision reached its bound; the queue of this namespace is to be looked at again."""

    kind: Literal["rescan"] = "rescan"
    namespace: Label


class ForgetNoted(Value):
    """A finished run leaves the state."""

    kind: Literal["forget"] = "forget"
    run_id: UUID


class LetterNoted(Value):
    """A dead letter is settled: its input was decided after all, or an operator let go of it."""

    kind: Literal["letter"] = "letter"
    position: PositionText
    end: Literal["redriven", "dropped"]


Fact = Annotated[
    NothingNoted
    | NamespaceNoted
    | LimitNoted
    | PriceNoted
    | RunNoted
    | AttemptNoted
    | EndNoted
    | StartNoted
    | RescanNoted
    | ForgetNoted
    | LetterNoted,
    Field(discriminator="kind"),
]


class Noted(EventData):
    """An input that no other event of this service answers, with the data it leaves behind."""

    KIND: ClassVar[Kind | None] = None
    about: Text
    fact: Fact


class InputDeadLettered(EventData):
    """An input that can never be handled; the cursor moved on past it."""

    KIND: ClassVar[Kind | None] = None
    fault: Fault
