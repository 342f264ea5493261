"""``orca quota set`` and ``orca price set``: what operators decide."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from orca_schemas.asks import Quotas
from orca_schemas.errors import MalformedError
from orca_schemas.events.admin import QuotaSet
from orca_schemas.identifiers import CLUSTER, check_label, name_id
from orca_schemas.subjects import Kind, Role, Stream

from orca_client.cli import exits, screen, words
from orca_client.cli.context import with_connection
from orca_client.connection import Connection
from orca_client.limits import parse_limit
from orca_client.listen import Answers, answers_about, reason_of
from orca_client.money import check_sku, micro_usd, parse_price_micro_usd
from orca_client.submit import set_namespace, set_price, set_quota

NOTHING = "nothing"
ADMIN_HELP = "A user who may cancel others' tasks; those given replace those before"


def register(app: typer.Typer) -> None:
    """Add the groups."""
    quota = typer.Typer(no_args_is_help=True, help="Limits of namespaces; see orca get quota.")
    quota.command(
        "set",
        help="Set limits of a namespace (made if new): gpus[:TYPE]=2 cpu=8 memory=64Gi tasks=10 "
        "tokens=1000000; 0 blocks, unlimited lifts.",
    )(_quota_set)
    app.add_typer(quota, name="quota")
    price = typer.Typer(no_args_is_help=True, help="The price book; see orca get prices.")
    price.command(
        "set",
        help="Set a price in US dollars: gpu:TYPE per GPU-hour, cpu per core-hour, "
        "tokens:MODEL:CLASS per million tokens (CLASS * for all).",
    )(_price_set)
    app.add_typer(price, name="price")


def _quota_set(
    context: typer.Context,
    namespace: Annotated[str, typer.Argument(help="The account")],
    limits: Annotated[list[str], typer.Argument(help="DIMENSION=LIMIT …")],
    admin: Annotated[list[str] | None, typer.Option(help=ADMIN_HELP)] = None,
) -> int:
    check_label("namespace", namespace)
    wanted = [parse_limit(text) for text in limits]
    admins = tuple(check_label("admin", name) for name in admin or ())

    async def work(connection: Connection) -> int:
        async with answers_about(
            connection, namespace, Kind.ACCOUNT, namespace, Role.ADMISSION
        ) as answers:
            if admins or not await _is_known(connection, namespace):
                sequence = await set_namespace(connection, namespace, admins)
                if refusal := await _refusal(answers, sequence):
                    return _refused(namespace, refusal)
            codes = [await _set(connection, answers, namespace, quota) for quota in wanted]
        return max(codes)

    return with_connection(context, work)


async def _is_known(connection: Connection, namespace: str) -> bool:
    quotas = await connection.ask(Quotas, "admission", "quota")
    return any(row.account == namespace for row in quotas.rows)


async def _set(connection: Connection, answers: Answers, namespace: str, quota: QuotaSet) -> int:
    name = words.dimension(quota.dimension)
    refusal = await _refusal(answers, await set_quota(connection, namespace, quota))
    if refusal:
        return _refused(f"{namespace} {name}", refusal)
    screen.line(f"{namespace} {name}: {words.amount(quota.dimension, quota.limit)}")
    return exits.FINE


async def _refusal(answers: Answers, sequence: int) -> str | None:
    """Why the request was refused; None where it was not."""
    event, data = await answers.to(sequence, Stream.ADMIN)
    return reason_of(data) if event == "RequestRefused" else None


def _refused(what: str, why: str) -> int:
    screen.note(f"{what}: {why}")
    return exits.REFUSED


def _price_set(
    context: typer.Context,
    sku: str = typer.Argument(..., help="gpu:TYPE, cpu or tokens:MODEL:CLASS"),
    price: str = typer.Argument(..., help="US dollars with at most 6 decimals"),
    at: str | None = typer.Option(None, help="From when on, ISO 8601 (UTC); default: from now on"),
) -> int:
    check_sku(sku)
    amount = parse_price_micro_usd(price)
    since_ms = parse_time_ms(at) if at else None

    async def work(connection: Connection) -> int:
        id_ = str(name_id(Kind.PRICE, sku))
        async with answers_about(connection, CLUSTER, Kind.PRICE, id_, Role.BILLING) as answers:
            sequence = await set_price(connection, sku, amount, since_ms)
            event, data = await answers.to(sequence, Stream.ADMIN)
        if event == "RequestRefused":
            return _refused(sku, reason_of(data))
        if data.get("fact", {}).get("kind") == NOTHING:
            return _refused(sku, str(data.get("about")))
        since = f" from {words.clock(since_ms)} UTC on" if since_ms else ""
        screen.line(f"{sku}: {micro_usd(amount)}{since}")
        return exits.FINE

    return with_connection(context, work)


def parse_time_ms(text: str) -> int:
    """Read an ISO 8601 time, UTC where it names no zone, into Unix ms. Raises MalformedError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedError("at", text, "write a time such as 2026-01-31T12:00Z") from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)
