"""The plan: from what is desired, seen and remembered to what is to be done. Pure.

Phases: 1 say what has happened 2 make what is missing 3 end what is ordered or not desired
4 clear away what nobody needs. Without an answer of placement only 1, and stops that were
ordered before, are left: what runs, runs on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orca_schemas.asks import Desired, DesiredAttempt, StopAsked
from orca_schemas.values import Outcome, Reason, ReasonCode

from orca_node_agent.endings import FORGOTTEN, Ending, ending_of, never_started, vanished
from orca_node_agent.executor import AttemptObserved, AttemptPhase
from orca_node_agent.records import AttemptRecord, Phase, key_of

FORGOTTEN_GRACE_MS = 30_000
"""As docker stop and Kubernetes give by default where nobody said otherwise."""
LOG_DRAIN_MS = 600_000
"""How long an ended attempt's remains wait for its output to be published."""


@dataclass(frozen=True, slots=True)
class Start:
    """Make the attempt's body."""

    attempt: DesiredAttempt


@dataclass(frozen=True, slots=True)
class Adopt:
    """A body that belongs here is found, but no record of it."""

    attempt: DesiredAttempt


@dataclass(frozen=True, slots=True)
class Renew:
    """What the probe may spend has changed."""

    key: str
    granted_tokens: int | None
    lease_base_tokens: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the body: SIGTERM, and SIGKILL after the grace."""

    key: str
    order: StopAsked


@dataclass(frozen=True, slots=True)
class ReportStarted:
    """Say that the body runs."""

    key: str
    started_at_ms: int


@dataclass(frozen=True, slots=True)
class ReportFinished:
    """Say that the body is gone."""

    key: str
    ending: Ending


@dataclass(frozen=True, slots=True)
class Abandon:
    """End an attempt that has not begun; should its body run by now, do nothing yet."""

    attempt: DesiredAttempt
    ending: Ending


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say that the assignment cannot be carried out."""

    attempt: DesiredAttempt
    reason: Reason


@dataclass(frozen=True, slots=True)
class Remove:
    """Free what is left of the attempt and forget it."""

    key: str


Action = Start | Adopt | Renew | Stop | ReportStarted | ReportFinished | Abandon | Refuse | Remove


@dataclass(frozen=True, slots=True)
class Host:
    """What else the plan depends on. ``starting``: keys whose start is under way."""

    now_ms: int
    gpu_uuids: frozenset[str] = frozenset()
    gpus_answer: bool = True
    spool_full: bool = False
    starting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _View:
    """One plan's inputs. ``wanted`` is None where placement's wish is not known."""

    wanted: Mapping[str, DesiredAttempt] | None
    observed: Mapping[str, AttemptObserved]
    known: Mapping[str, AttemptRecord]
    host: Host


def is_older(answer: tuple[int, int], acted_on: tuple[int, int]) -> bool:
    """Whether an answer, by (epoch, sequence), is older than one acted on: to be ignored."""
    return answer < acted_on


def plan(
    desired: Desired | None,
    observed: Mapping[str, AttemptObserved],
    known: Mapping[str, AttemptRecord],
    host: Host,
) -> tuple[Action, ...]:
    """What to do now, in order. ``observed`` is complete; ``desired`` None: nobody answered."""
    wanted = None
    if desired is not None and desired.known:
        wanted = {key_of(attempt): attempt for attempt in desired.attempts}
    view = _View(wanted, observed, known, host)
    actions = [*_reports(view), *_stops(view)]
    if wanted is not None:
        actions += [*_arrivals(view), *_departures(view)]
    return tuple(actions)


def _reports(view: _View) -> Iterator[Action]:
    for key, record in view.known.items():
        seen, phase = view.observed.get(key), record.progress.phase
        if phase is Phase.ENDED:
            continue
        if seen is None:
            if phase is Phase.STARTED:
                yield ReportFinished(key, vanished(record.progress.started_at_ms))
            continue
        if phase is Phase.ACCEPTED:
            yield ReportStarted(key, seen.started_at_ms)
        if seen.phase is AttemptPhase.EXITED:
            yield ReportFinished(key, ending_of(seen, record.progress.stop))


def _stops(view: _View) -> Iterator[Action]:
    """Every order to end, again on each round until the body is gone."""
    for key in sorted(view.observed.keys() | view.host.starting):
        order = _order(view, key)
        if order is not None and _lives(view, key):
            yield Stop(key, order)


def _lives(view: _View, key: str) -> bool:
    seen = view.observed.get(key)
    if seen is None:
        return key in view.host.starting
    return seen.phase is AttemptPhase.RUNNING


def _order(view: _View, key: str) -> StopAsked | None:
    """What ends this attempt: an order acted on before, one given now, or being forgotten."""
    record = view.known.get(key)
    if record is not None and record.progress.stop is not None:
        stop = record.progress.stop
        return StopAsked(outcome=stop.outcome, message=stop.message, grace_ms=stop.grace_ms)
    if view.wanted is None:
        return None
    attempt = view.wanted.get(key)
    if attempt is not None and attempt.fence == _fence_here(view, key):
        return attempt.stop
    return StopAsked(outcome=Outcome.NODE_LOST, message=FORGOTTEN, grace_ms=FORGOTTEN_GRACE_MS)


def _fence_here(view: _View, key: str) -> str | None:
    if key in view.known:
        return view.known[key].fence
    return view.observed[key].fence if key in view.observed else None


def _arrivals(view: _View) -> Iterator[Action]:
    assert view.wanted is not None
    taken = _taken_gpus(view)
    for key, attempt in view.wanted.items():
        here = _fence_here(view, key)
        if here is not None and here != attempt.fence:
            continue  # an attempt number is used once: never a second body under the same name
        record = view.known.get(key)
        if record is None and key in view.observed:
            yield Adopt(attempt)
        elif record is None:
            yield from _arrival(view, attempt, taken)
        elif record.progress.phase is not Phase.ENDED:
            yield from _continued(view, attempt, record)


def _arrival(
    view: _View, attempt: DesiredAttempt, taken: frozenset[str] | None
) -> Iterator[Action]:
    """A new assignment: refused, ended before it began, held back, or made."""
    if attempt.stop is not None:
        yield Abandon(attempt, never_started(attempt.stop.outcome, attempt.stop.message))
        return
    reason = _objection(view.host, attempt)
    if reason is not None:
        yield Refuse(attempt, reason)
        return
    gpus = {slot.gpu_uuid for slot in attempt.slots}
    if gpus and (taken is None or gpus & taken):
        return  # a body that placement gave up still sits there: wait until it is gone
    yield Start(attempt)


def _continued(view: _View, attempt: DesiredAttempt, record: AttemptRecord) -> Iterator[Action]:
    """An assignment known before: its lease, and its start where that was cut off."""
    lease = (attempt.granted_tokens, attempt.lease_base_tokens)
    progress = record.progress
    if lease != (progress.granted_tokens, progress.lease_base_tokens):
        yield Renew(record.key, *lease)
    if progress.phase is not Phase.ACCEPTED or _lives(view, record.key):
        return
    if record.key in view.observed:
        return
    stop = progress.stop or attempt.stop
    if stop is not None:
        yield Abandon(attempt, never_started(stop.outcome, stop.message))
    else:
        yield Start(record.assigned)


def _objection(host: Host, attempt: DesiredAttempt) -> Reason | None:
    """Why the host cannot take the attempt, if so."""
    if host.spool_full:
        return Reason(
            code=ReasonCode.NODE_HEALTH,
            message="the node's spool is full: the broker has been away for too long",
        )
    if attempt.slots and not host.gpus_answer:
        return Reason(code=ReasonCode.NODE_HEALTH, message="the node's GPU driver does not answer")
    absent = sorted({slot.gpu_uuid for slot in attempt.slots} - host.gpu_uuids)
    if absent:
        return Reason(
            code=ReasonCode.NODE_HEALTH, message=f"no such GPU on this node: {', '.join(absent)}"
        )
    return None


def _taken_gpus(view: _View) -> frozenset[str] | None:
    """GPUs under bodies that placement no longer counts; None: such a body's are not known."""
    assert view.wanted is not None
    taken: set[str] = set()
    for key, seen in view.observed.items():
        attempt = view.wanted.get(key)
        counted = attempt is not None and attempt.fence == seen.fence
        if counted or seen.phase is AttemptPhase.EXITED:
            continue
        if key not in view.known:
            return None
        taken |= {slot.gpu_uuid for slot in view.known[key].assigned.slots}
    return frozenset(taken)


def _departures(view: _View) -> Iterator[Action]:
    """What placement no longer lists: its remains and its record go, once all is said."""
    assert view.wanted is not None
    for key in sorted(view.known.keys() | view.observed.keys()):
        if key in view.wanted or _lives(view, key):
            continue
        record = view.known.get(key)
        if record is None or _all_said(record, view.host.now_ms):
            yield Remove(key)
        elif record.progress.phase is Phase.ACCEPTED and key not in view.observed:
            yield Abandon(record.assigned, never_started(Outcome.NODE_LOST, FORGOTTEN))


def _all_said(record: AttemptRecord, now_ms: int) -> bool:
    progress = record.progress
    if progress.phase is not Phase.ENDED:
        return False
    return progress.logs_done or now_ms >= (progress.ended_at_ms or 0) + LOG_DRAIN_MS
