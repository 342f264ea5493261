"""CloudEvents 1.0 in JSON: what stands around an event's data."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from orca_schemas import patterns
from orca_schemas.model import EventData, omitted
from orca_schemas.positions import PositionText

D = TypeVar("D", bound=EventData)

Digest = Annotated[str, StringConstraints(pattern=patterns.DIGEST)]
TraceParent = Annotated[str, StringConstraints(pattern=patterns.TRACEPARENT)]
Short = Annotated[str, StringConstraints(max_length=256)]


class Envelope(BaseModel, Generic[D]):
    """The body of every event. A client need send only ``type`` and ``data``.

    ``cause`` is the position of the input that was decided, ``timer`` what fell due (then
    ``cause`` is what set the timer), ``correlationid`` the run, ``cursor`` the inputs done through
    (on the last event of a decision), ``previous`` the digest of the event before this one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    specversion: Literal["1.0"] = "1.0"
    id: UUID | None = omitted()
    source: Short | None = omitted()
    type: Short
    subject: Short | None = omitted()
    time: Short | None = omitted()
    datacontenttype: Literal["application/json"] | None = omitted()
    cause: PositionText | None = omitted()
    timer: Short | None = omitted()
    correlationid: Short | None = omitted()
    cursor: Annotated[str, Field(max_length=2048)] | None = omitted()
    previous: Digest | None = omitted()
    traceparent: TraceParent | None = omitted()
    tracestate: Short | None = omitted()
    data: D
