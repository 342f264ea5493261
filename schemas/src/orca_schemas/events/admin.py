"""What operators say (stream ADMIN)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from orca_schemas.identifiers import Label
from orca_schemas.model import EventData, Value
from orca_schemas.positions import PositionText
from orca_schemas.subjects import Kind, Role
from orca_schemas.units import Amount, UnixMs
from orca_schemas.values import Dimension, ModelName, Period


class NamespaceSet(EventData):
    """A namespace exists (the subject names it) and these people look after it."""

    ROLE: ClassVar = Role.ADMIN
    KIND: ClassVar = Kind.ACCOUNT
    admins: tuple[Label, ...] = ()
    approvers: tuple[Label, ...] = ()


class QuotaSet(EventData):
    """The limit of one dimension of an account: null unlimited, 0 blocks, positive limits."""

    ROLE: ClassVar = Role.ADMIN
    KIND: ClassVar = Kind.ACCOUNT
    dimension: Dimension
    limit: Amount | None
    period: Period


class PriceTier(Value):
    """From ``from_quantity`` of the unit on, each unit costs ``price_micro_usd``."""

    from_quantity: Amount
    price_micro_usd: Amount


class PriceSet(EventData):
    """The price of a sku from ``effective_at_ms`` on.

    skus: ``gpu:<type>`` per GPU-hour, ``cpu`` per core-hour, ``tokens:<model>:<class>`` per
    million tokens. ``effective_at_ms`` must not be before the stream's time of this event; None
    means from that very time on.
    """

    ROLE: ClassVar = Role.ADMIN
    KIND: ClassVar = Kind.PRICE
    sku: ModelName
    tiers: Annotated[tuple[PriceTier, ...], Field(min_length=1, max_length=1)]
    effective_at_ms: UnixMs | None = None


class RedriveRequested(EventData):
    """The service that owns this account name is to read the dead-lettered input again."""

    ROLE: ClassVar = Role.ADMIN
    KIND: ClassVar = Kind.ACCOUNT
    position: PositionText


class DeadLetterDropRequested(EventData):
    """The service that owns this account name is to count the dead-lettered input as settled."""

    ROLE: ClassVar = Role.ADMIN
    KIND: ClassVar = Kind.ACCOUNT
    position: PositionText
