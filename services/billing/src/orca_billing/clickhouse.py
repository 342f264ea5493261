"""Billing's tables in ClickHouse: each charge line, and whose run it is."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from uuid import UUID

from orca_runtime.clickhouse import ClickHouseSink, Row, TableWriter, statements
from orca_runtime.recorded import Recorded
from orca_schemas.events.admission import QuotaReserved
from orca_schemas.events.billing import Charged
from orca_schemas.subjects import Stream
from orca_schemas.values import ChargeLine

from orca_billing.skus import model_of

STREAMS = (Stream.BILLING, Stream.ADMISSION)
PICO_EXPONENT = -12


def charge_sink(url: str) -> ClickHouseSink:
    """The sink of ``charges`` and ``run_owners``, over STREAMS; ``url`` as connect takes it."""
    return ClickHouseSink(url, "billing-charges", statements("orca_billing"), [CHARGES, RUN_OWNERS])


def usd(pico_usd: int) -> Decimal:
    """The exact Decimal of an amount; arithmetic on Decimals would round to the context's 28."""
    sign, digits = int(pico_usd < 0), tuple(int(digit) for digit in str(abs(pico_usd)))
    return Decimal((sign, digits, PICO_EXPONENT))


def charge_rows(event: Recorded) -> Iterable[Row]:
    """One row per line of the charge."""
    charged = event.data
    if not isinstance(charged, Charged):
        return ()
    about, (_, epoch, sequence) = event.subject, event.position
    head = (about.namespace, UUID(about.id), charged.run_id)
    return ((*head, *_priced(line), epoch, sequence) for line in charged.lines)


def _priced(line: ChargeLine) -> Row:
    return (
        line.record_id,
        line.meter.value,
        model_of(line.sku),
        line.sku,
        line.quantity,
        line.unit,
        line.price or "",
        line.price_micro_usd,
        usd(line.amount_pico_usd),
    )


CHARGES = TableWriter(
    "charges",
    (
        "namespace", "task_id", "run_id", "record_id", "meter", "model", "sku", "quantity", "unit",
        "price", "price_micro_usd", "amount_usd", "stream_epoch", "stream_sequence",
    ),
    charge_rows,
)  # fmt: skip


def owner_rows(event: Recorded) -> Iterable[Row]:
    """One row per run that admission reserved."""
    reserved = event.data
    if isinstance(reserved, QuotaReserved):
        about, (_, epoch, sequence), spec = event.subject, event.position, reserved.spec
        run = (about.namespace, reserved.run_id, UUID(about.id), spec.name, spec.user)
        yield (*run, epoch, sequence)


RUN_OWNERS = TableWriter(
    "run_owners",
    ("namespace", "run_id", "task_id", "name", "user", "stream_epoch", "stream_sequence"),
    owner_rows,
)
