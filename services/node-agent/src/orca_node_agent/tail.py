"""Publishes what attempts print, by byte offset: nothing is lost, and a repeat is seen as one."""

from __future__ import annotations

import codecs
import json

import structlog
from orca_runtime.errors import LogError
from orca_runtime.log import Outgoing
from orca_schemas.subjects import logs_subject

from orca_node_agent.executor import Executor, ExecutorUnavailableError
from orca_node_agent.ledger import Ledger
from orca_node_agent.ports import Bus
from orca_node_agent.records import AttemptRecord, Phase
from orca_node_agent.spool import Spool, SpoolError
from orca_node_agent.spool_thread import SpoolThread

CHUNK_BYTES = 64 * 1024
"""As JSON at most six times as long: below the broker's 1 MiB."""
CHUNKS_PER_ROUND = 16
"""A task that prints without end must not keep the others waiting."""

_log = structlog.get_logger(__name__)


class LogTail:
    """Follows the output of every attempt remembered."""

    def __init__(
        self,
        node: str,
        executor: Executor,
        spool: Spool,
        ledger: Ledger,
        thread: SpoolThread,
        bus: Bus,
    ) -> None:
        self._node, self._executor, self._spool = node, executor, spool
        self._ledger, self._thread, self._bus = ledger, thread, bus

    async def round(self) -> None:
        """Publish what is new of every attempt; what fails is tried again in the next round."""
        for record in tuple(self._spool.records.values()):
            if record.progress.logs_done or record.progress.phase is Phase.ACCEPTED:
                continue
            try:
                await self._follow(record)
            except ExecutorUnavailableError as error:
                _log.info("output not readable", key=record.key, error=str(error))
            except (LogError, SpoolError) as error:
                _log.info("output waits", key=record.key, error=str(error))
                return

    async def _follow(self, record: AttemptRecord) -> None:
        """Publish up to the end of what is there. After the end of the attempt, to the very end."""
        offset, ended = record.progress.log_offset, record.progress.phase is Phase.ENDED
        for _ in range(CHUNKS_PER_ROUND):
            chunk = await self._executor.read_log(record.key, offset, CHUNK_BYTES)
            text, taken = decoded(chunk.data, final=ended and len(chunk.data) < CHUNK_BYTES)
            if taken:
                await self._bus.publish(_message(record, self._node, offset, taken, text))
                offset += taken
            done = ended and not taken
            if taken or done:
                await self._thread.quietly(self._ledger.published_log, record.key, offset, done)
            if not taken:
                return


def decoded(data: bytes, final: bool) -> tuple[str, int]:
    """Text of UTF-8 bytes and how many were taken; a character cut at the end is left, if more
    may come. Bytes that are no UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final)
    return text, len(data) - len(decoder.getstate()[0])


def _message(record: AttemptRecord, node: str, offset: int, taken: int, text: str) -> Outgoing:
    assigned = record.assigned
    body = {
        "run_id": str(assigned.run_id),
        "attempt": assigned.attempt,
        "offset": offset,
        "text": text,
    }
    where = logs_subject(assigned.spec.namespace, assigned.spec.user, str(assigned.task_id), node)
    # Offset and length: a chunk sent again longer than before must not pass for the same.
    return Outgoing(where, json.dumps(body).encode(), f"{record.key}-{offset}-{taken}")
