"""Messages of a node: events in their envelopes, under the node's own subjects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from orca_runtime.log import Outgoing
from orca_runtime.tracing import child_of
from orca_schemas.asks import DesiredAttempt
from orca_schemas.codec import encode
from orca_schemas.envelope import Envelope
from orca_schemas.identifiers import CLUSTER, derived_id
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Role, Subject, subject
from orca_schemas.values import RecordHead

MS_PER_S = 1000


def attempt_message(attempt: DesiredAttempt, node: str, data: EventData, time_ms: int) -> Outgoing:
    """An event about an attempt; said again after a crash it has the same id.

    ``time_ms`` (Unix ms, the node's clock) is when it happened.
    """
    id_ = derived_id(time_ms, type(data).__name__, attempt.run_id, attempt.attempt, attempt.fence)
    role = data.ROLE or Role.NODE
    where = subject(
        attempt.spec.namespace, Kind.TASK, str(attempt.task_id), role, node, type(data).__name__
    )
    if isinstance(data, RecordHead):
        id_ = data.record_id
    return _message(where, data, id_, time_ms, attempt)


def node_message(node: str, data: EventData, time_ms: int) -> Outgoing:
    """An event about the node itself."""
    id_ = derived_id(time_ms, type(data).__name__, node, data.model_dump_json())
    where = subject(CLUSTER, Kind.NODE, node, Role.NODE, node, type(data).__name__)
    return _message(where, data, id_, time_ms, None)


def _message(
    where: Subject, data: EventData, id_: UUID, time_ms: int, attempt: DesiredAttempt | None
) -> Outgoing:
    envelope = Envelope[Any](
        id=id_,
        source=f"orca/node-agent/{where.party}",
        type=data.type_name(),
        time=datetime.fromtimestamp(time_ms / MS_PER_S, UTC).isoformat(timespec="milliseconds"),
        datacontenttype="application/json",
        cause=attempt.fence if attempt else None,
        correlationid=str(attempt.run_id) if attempt else None,
        traceparent=_trace(attempt, id_) if attempt else None,
        data=data,
    )
    return Outgoing(str(where), encode(envelope), str(id_))


def _trace(attempt: DesiredAttempt, id_: UUID) -> str:
    return child_of(attempt.traceparent, str(attempt.run_id), id_)
