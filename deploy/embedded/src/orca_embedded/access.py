"""Who may do what at the embedded broker: users, passwords, permissions (``orca up --auth``).

Streams live in the account ORCA, where only the services are. Clients and nodes are in accounts
of their own and reach it through service imports alone: an acknowledgement goes back into their
account, so a forged reply subject reaches no stream.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from orca_schemas.subjects import inbox_prefix

from orca_embedded.problems import StackProblem
from orca_embedded.settings import StackSettings

SERVICE, OPERATOR, CLIENT = "service", "operator", "client"
ACCOUNT = "ORCA"
OPEN_ACCOUNT = "$G"
"""Where the broker keeps streams of those who connect without an account."""
PASSWORD_BYTES = 24
FOLDER = "access"

EVENTS = "orca.*.*.*.*.*.*"
ASKS = "orca.ask.>"
REBUILDS = "orca.ask.*.*.*.rebuild"
"""The one question that costs much: an operator's."""
SAID_BY_USERS = "orca.*.*.*.client.*.*"
SAID_BY_OPERATORS = "orca.*.*.*.admin.*.*"
CLIENT_SERVICES = (SAID_BY_USERS, SAID_BY_OPERATORS, ASKS)
CLIENT_STREAMS = (EVENTS,)
NODE_SERVICES = (
    "orca.*.*.*.node.*.*", "orca.*.*.*.probe.*.*", "orca.telemetry.>", "orca.logs.>", ASKS,
)  # fmt: skip
NODE_STREAMS = ("orca.hint.*",)


def node_user(node: str) -> str:
    """The broker's user of a node."""
    return f"node-{node}"


def users(settings: StackSettings) -> list[str]:
    """Every user of this stack's broker."""
    return [SERVICE, OPERATOR, CLIENT, *map(node_user, settings.node_gpus())]


def password_path(home: Path, user: str) -> Path:
    """Where a user's password is kept, for its owner's eyes only."""
    return home / FOLDER / user


def password(settings: StackSettings, user: str) -> str:
    """A user's password, drawn when it is first asked for. Raises StackProblem."""
    path = password_path(settings.home(), user)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_private(path, secrets.token_urlsafe(PASSWORD_BYTES))
        return path.read_text().strip()
    except OSError as error:
        raise StackProblem(f"{path}: {error.strerror}") from None


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may ever read, not even for a moment."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def credentials(settings: StackSettings, user: str) -> dict[str, str]:
    """What a program needs in its environment to connect as a user; nothing without ``auth``."""
    if not settings.auth:
        return {}
    return {"ORCA_NATS_USER": user, "ORCA_NATS_PASSWORD": password(settings, user)}


def accounts_config(settings: StackSettings) -> str:
    """The broker's accounts, as its configuration file has them."""
    service = {"user": SERVICE, "password": password(settings, SERVICE)}
    home = {
        "jetstream": "enabled",
        "users": [service],
        "exports": [
            *({"service": one, "accounts": _importers(one)} for one in _services()),
            *({"stream": one, "accounts": ["CLIENTS"]} for one in CLIENT_STREAMS),
            *({"stream": one, "accounts": ["NODES"]} for one in NODE_STREAMS),
        ],
    }
    operator = _user(settings, OPERATOR, CLIENT_SERVICES, CLIENT_STREAMS)
    # The libraries' own inbox prefix is this user's too, so that any client works as it comes.
    hears = (EVENTS, f"{inbox_prefix(None)}.>")
    client = _user(settings, CLIENT, (SAID_BY_USERS, ASKS), hears, (REBUILDS,))
    nodes = [_node(settings, node) for node in settings.node_gpus()]
    accounts = {
        ACCOUNT: home,
        "CLIENTS": _guests([operator, client], CLIENT_SERVICES, CLIENT_STREAMS),
        "NODES": _guests(nodes, NODE_SERVICES, NODE_STREAMS),
    }
    return f"accounts: {json.dumps(accounts, indent=2)}\n"


def _services() -> list[str]:
    return sorted({*CLIENT_SERVICES, *NODE_SERVICES})


def _importers(service: str) -> list[str]:
    guests = {"CLIENTS": CLIENT_SERVICES, "NODES": NODE_SERVICES}
    return [account for account, services in guests.items() if service in services]


def _guests(
    members: Sequence[object], services: Sequence[str], streams: Sequence[str]
) -> Mapping[str, object]:
    wanted = [("service", one) for one in services] + [("stream", one) for one in streams]
    imports = [{kind: {"account": ACCOUNT, "subject": one}} for kind, one in wanted]
    return {"users": members, "imports": imports}


def _user(
    settings: StackSettings,
    user: str,
    may_say: Sequence[str],
    may_hear: Sequence[str],
    but_not_say: Sequence[str] = (),
) -> dict[str, object]:
    hears = [f"{inbox_prefix(user)}.>", *may_hear]
    says = {"allow": list(may_say), "deny": list(but_not_say)}
    permissions = {"publish": says, "subscribe": hears}
    return {"user": user, "password": password(settings, user), "permissions": permissions}


def _node(settings: StackSettings, node: str) -> dict[str, object]:
    says = (
        f"orca.*.*.*.node.{node}.*",
        f"orca.*.*.*.probe.{node}.*",
        f"orca.telemetry.{node}.*",
        f"orca.logs.*.*.*.{node}",
        f"orca.ask._cluster.{node}.placement.*",
    )
    return _user(settings, node_user(node), says, (f"orca.hint.{node}",))


def settle_log(settings: StackSettings) -> None:
    """Let the broker find the log of this directory, whether it was made with or without users.

    The broker keeps each account's streams in a folder of its name. Raises StackProblem.
    """
    store = settings.home() / "nats" / "jetstream"
    wanted, other = (ACCOUNT, OPEN_ACCOUNT) if settings.auth else (OPEN_ACCOUNT, ACCOUNT)
    if not _has_log(store / other):
        return
    if _has_log(store / wanted):
        raise StackProblem(
            f"{store} holds two logs, {OPEN_ACCOUNT} and {ACCOUNT}; move one of them away"
        )
    (store / other).replace(store / wanted)


def _has_log(account: Path) -> bool:
    streams = account / "streams"
    return streams.is_dir() and any(streams.iterdir())
