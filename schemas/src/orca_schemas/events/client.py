"""What users say (stream CLIENT)."""

from __future__ import annotations

from typing import ClassVar

from orca_schemas.manifest import AITask
from orca_schemas.model import EventData
from orca_schemas.subjects import Role
from orca_schemas.values import Text


class TaskSubmitted(EventData):
    """A task is wanted. The subject's id is the task id; its party is the user."""

    ROLE: ClassVar = Role.CLIENT
    manifest: AITask


class TaskCancelRequested(EventData):
    """The user no longer wants the task."""

    ROLE: ClassVar = Role.CLIENT
    reason: Text = ""
