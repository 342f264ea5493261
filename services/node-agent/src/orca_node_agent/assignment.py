"""From an assignment to what an executor is given."""

from __future__ import annotations

from orca_schemas.asks import DesiredAttempt

from orca_node_agent.executor import AttemptSpec
from orca_node_agent.records import key_of


def attempt_spec(attempt: DesiredAttempt, usage_url: str, usage_token: str) -> AttemptSpec:
    """The body to make. A task that does not track tokens is told no usage endpoint."""
    spec = attempt.spec
    own = {
        "ORCA_TASK_ID": str(attempt.task_id),
        "ORCA_ATTEMPT": str(attempt.attempt),
        # The same for every attempt of a run: what was done under it need not be done again.
        "ORCA_IDEMPOTENCY_KEY": str(attempt.run_id),
    }
    if spec.track_token_usage:
        own |= {"ORCA_USAGE_URL": usage_url, "ORCA_USAGE_TOKEN": usage_token}
    return AttemptSpec(
        key=key_of(attempt),
        run_id=attempt.run_id,
        task_id=attempt.task_id,
        namespace=spec.namespace,
        attempt=attempt.attempt,
        fence=attempt.fence,
        image=spec.image,
        command=spec.command,
        env=tuple((dict(spec.env) | own).items()),
        cpu_milli=spec.cpu_milli,
        memory_mib=spec.memory_mib,
        gpu_uuids=tuple(dict.fromkeys(slot.gpu_uuid for slot in attempt.slots)),
    )
