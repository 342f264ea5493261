"""Who the agent is: its data directory, held by one agent at a time, and this boot of the host."""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from orca_schemas.identifiers import derived_id

from orca_node_agent.boot import BOOT_ID_PATH, host_boot_id

SECRET_BYTES = 32


class DataDirTakenError(Exception):
    """Another agent uses this data directory. Stop it, or give this one another directory."""


class Identity:
    """The agent's data directory: its lock, its secret, and what is derived from them.

    The secret makes the usage tokens, so a restarted agent accepts what an earlier one gave out.
    """

    def __init__(self, data_dir: Path, boot_id_path: Path = BOOT_ID_PATH) -> None:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.data_dir = data_dir
        self._lock = _lock(data_dir / "agent.lock")
        self._secret = _secret(data_dir / "agent.secret")
        self.host_boot_id = host_boot_id(boot_id_path)

    @property
    def boot_id(self) -> UUID:
        """This boot of this host, for this agent: a new one says that nothing of before runs."""
        agent = sha256(self._secret).hexdigest()
        return derived_id(0, "boot", self.host_boot_id, agent)

    def token(self, key: str) -> str:
        """The usage token of an attempt: its key, and a seal that only this agent can make."""
        return f"{key}.{self._seal(key)}"

    def key_of(self, token: str) -> str | None:
        """The attempt that a token was made for; None if this agent did not make it."""
        key, _, seal = token.rpartition(".")
        made_here = hmac.compare_digest(seal.encode(), self._seal(key).encode())
        return key if made_here else None

    def close(self) -> None:
        """Let another agent have the directory."""
        os.close(self._lock)

    def _seal(self, key: str) -> str:
        return hmac.new(self._secret, key.encode(), sha256).hexdigest()


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DataDirTakenError(
            f"{path.parent} is in use by another node agent; stop it or set ORCA_DATA_DIR"
        ) from None
    return descriptor


def _secret(path: Path) -> bytes:
    """Read the secret, or draw it once. Atomic: a crash leaves either none or a whole one."""
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        with fresh.open("wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    found = path.read_bytes()
    assert len(found) == SECRET_BYTES, f"{path} is damaged; remove it once no task runs"
    return found
