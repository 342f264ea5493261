"""What becomes of a reservation: attempts, top-ups, settlements, releases."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.recorded import Decided
from orca_schemas.events.admission import (
    LeaseExtended,
    Part,
    QuotaReleased,
    QuotaSettled,
    TaskStopRequested,
)
from orca_schemas.events.common import AttemptNoted, EndNoted
from orca_schemas.values import Meter, Outcome, Reason, ReasonCode

from orca_admission.answers import about_run, noted, nothing, refused
from orca_admission.commands import ExtendLease, NoteAttempt, NoteEnd, Release, Settle
from orca_admission.lease import next_grant
from orca_admission.ledger import TOKENS, UNTOUCHED, as_holds, release, settle
from orca_admission.reasons import reason
from orca_admission.reserve import reserve_waiting
from orca_admission.state import Run, State


def note_attempt(state: State, command: NoteAttempt) -> list[Decided]:
    """Remember which node may ask for top-ups, and under which fence."""
    run = _live(state, command.run_id)
    if run is None:
        return nothing(command.origin)
    fact = AttemptNoted(
        run_id=run.run_id, attempt=command.attempt, node=command.node, fence=command.fence
    )
    return [about_run(run, noted("Placed", fact))]


def note_end(state: State, command: NoteEnd) -> list[Decided]:
    """The attempt's node may ask for nothing any more."""
    run = _live(state, command.run_id)
    if run is None:
        return nothing(command.origin)
    fact = EndNoted(
        run_id=run.run_id,
        attempt=command.attempt,
        node=command.node,
        used=command.used,
        last=False,
    )
    return [about_run(run, noted("AttemptEnded", fact))]


def extend_lease(state: State, command: ExtendLease) -> list[Decided]:
    """Hand the probe the next part of the token hold, if there is one."""
    run = state.runs.get(command.run_id)
    if run is None:
        unknown = reason(ReasonCode.NOT_FOUND, f"no run {command.run_id} is known", "run_id")
        return refused(command.origin, unknown)
    why_not = _why_not_extend(run, command)
    if why_not is not None:
        return refused(command.origin, why_not, run.run_id)
    tokens = state.account(run.namespace).balances.get(TOKENS, UNTOUCHED)
    # A lowered limit that is already used up ends top-ups, though the hold is larger.
    if run.granted_tokens is None or tokens.committed >= tokens.ceiling:
        return nothing(command.origin)
    granted = next_grant(run.held_tokens, run.granted_tokens, command.used)
    if granted <= run.granted_tokens:
        return nothing(command.origin)
    return [about_run(run, LeaseExtended(run_id=run.run_id, granted_tokens=granted))]


def _why_not_extend(run: Run, command: ExtendLease) -> Reason | None:
    if command.meter is not Meter.TOKENS:
        return reason(ReasonCode.UNSUPPORTED, "only the tokens meter has a lease", "meter")
    if not run.live or Part.CONSUMABLE not in run.open_parts:
        return reason(ReasonCode.ENDED, "the run has ended and has no lease")
    asker = (command.origin.subject.party, command.attempt, command.fence)
    if asker != (run.node, run.attempt, run.fence):
        message = f"attempt {run.attempt} of the run is not this node's under this fence"
        return reason(ReasonCode.NOT_ALLOWED, message, "fence")
    return None


def release_concurrent(state: State, command: Release) -> list[Decided]:
    """Give back what a running task holds, and let in who waited for it."""
    run = _live(state, command.run_id)
    if run is None:
        return nothing(command.origin)
    held = run.still_held(Part.CONCURRENT)
    balances = release(state.account(run.namespace).balances, held)
    events = [_released(run, Part.CONCURRENT, run.used_tokens, command.outcome)]
    return events + reserve_waiting(state, run.namespace, balances, already=len(events))


def settle_usage(state: State, command: Settle) -> list[Decided]:
    """Commit what was used; stop who used up its quota; give back what is left at the end."""
    run = state.runs.get(command.run_id)
    if run is None or not run.reserved:
        return nothing(command.origin)
    used = max(run.used_tokens, command.used_tokens)
    final = command.final and Part.CONSUMABLE in run.open_parts
    events = []
    if used > run.used_tokens:
        events.append(about_run(run, QuotaSettled(run_id=run.run_id, used_tokens=used)))
    if final:
        return events + _release_consumable(state, run, used, already=len(events))
    if events and _exhausted(run, used):
        events.append(about_run(run, _stop(run, used)))
    return events or nothing(command.origin)


def _release_consumable(state: State, run: Run, used: int, already: int) -> list[Decided]:
    before = run.tokens_left(run.used_tokens)
    balances = state.account(run.namespace).balances
    if used > run.used_tokens or before:
        balances = settle(balances, used - run.used_tokens, before, 0)
    events = [_released(run, Part.CONSUMABLE, used)]
    waiting = reserve_waiting(state, run.namespace, balances, already + len(events))
    return events + waiting


def _released(run: Run, part: Part, used: int, outcome: Outcome | None = None) -> Decided:
    left = run.still_held(part)
    if part is Part.CONSUMABLE:
        tokens = run.tokens_left(used)
        left = ((TOKENS, tokens),) if tokens else ()
    amounts = as_holds(run.namespace, left)
    data = QuotaReleased(run_id=run.run_id, part=part, amounts=amounts, outcome=outcome)
    return about_run(run, data)


def _exhausted(run: Run, used: int) -> bool:
    limited = run.granted_tokens is not None and used >= run.held_tokens
    return limited and run.live and not run.stopping


def _stop(run: Run, used: int) -> TaskStopRequested:
    return TaskStopRequested(
        run_id=run.run_id,
        outcome=Outcome.QUOTA_EXHAUSTED,
        message=f"used {used} of {run.held_tokens} tokens (spec.resources.tokenQuota)",
    )


def _live(state: State, run_id: UUID) -> Run | None:
    run = state.runs.get(run_id)
    return run if run is not None and run.live else None
