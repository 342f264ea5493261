"""Every way in which an input may be wrong, as data: what is sent and what must come back."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "team-alpha"
REJECTED, REFUSED, LETTER = "TaskRejected", "RequestRefused", "InputDeadLettered"
RESERVED = "QuotaReserved"
IN_BODY = "data.manifest."
KIB = 1024
RAW = "@raw@"


@dataclass(frozen=True)
class Bad:
    """One input: where it goes, its bytes, and the answer that names ``field``."""

    name: str
    field: str
    body: bytes
    answer: str = REJECTED
    subject: str = "orca.team-alpha.task.{id}.client.alice.TaskSubmitted"
    headers: dict[str, str] | None = None
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def where(self) -> str:
        """The subject with the task id put in."""
        return self.subject.format(id=self.task_id)


def manifest() -> dict[str, Any]:
    """A manifest that is in order."""
    return {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": "a-task", "namespace": NAMESPACE, "labels": {"team": "x"}},
        "spec": {
            "taskType": "batch",
            "resources": {
                "gpu": {"type": "A100", "count": 1, "memoryLimit": "4Gi", "computePercent": 10,
                        "sharing": "shared"},
                "cpu": "100m",
                "memory": "64Mi",
                "tokenQuota": 1000,
            },
            "image": "busybox",
            "command": ["/bin/true"],
            "env": [{"name": "A", "value": "b"}],
            "schedulerHints": {"queue": "default"},
            "activeDeadline": "1h",
        },
    }  # fmt: skip


def event(data: Any, type_: str = "orca.TaskSubmitted.v1", **attributes: Any) -> bytes:
    """An event's body."""
    return json.dumps({"type": type_, "data": data} | attributes).encode()


def submitted(document: Any) -> bytes:
    """The body of a submission."""
    return event({"manifest": document})


def with_value(path: str, value: Any) -> bytes:
    """A submission whose manifest has ``value`` at a dotted path."""
    document = copy.deepcopy(manifest())
    *parents, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    place: Any = document
    for key in parents:
        place = place[key]
    place[last] = value
    return submitted(document)


def with_raw(path: str, text: str) -> bytes:
    """Likewise, with a value that json.dumps would not write."""
    return with_value(path, RAW).replace(f'"{RAW}"'.encode(), text.encode())


def values() -> list[Bad]:
    """Fields of the manifest with values that cannot be."""
    gpu, resources = "spec.resources.gpu", "spec.resources"
    table: list[tuple[str, str, Any]] = [
        ("a true CPU", f"{resources}.cpu", True),
        ("a list as CPU", f"{resources}.cpu", ["1"]),
        ("a number as memory", f"{resources}.memory", 64),
        ("a text as count", f"{gpu}.count", "1"),
        ("a fraction as count", f"{gpu}.count", 1.5),
        ("a text as percent", f"{gpu}.computePercent", "50"),
        ("a text as token quota", f"{resources}.tokenQuota", "5000"),
        ("a true token quota", f"{resources}.tokenQuota", True),
        ("a text as command", "spec.command", "echo hi"),
        ("a number in the command", "spec.command.0", 7),
        ("an object as env", "spec.env", {"A": "b"}),
        ("a null name", "metadata.name", None),
        ("a text as metadata", "metadata", "team-alpha"),
        ("a text as spec", "spec", "run it"),
        ("a negative CPU", f"{resources}.cpu", "-1"),
        ("a negative memory", f"{resources}.memory", "-1Gi"),
        ("a negative count", f"{gpu}.count", -1),
        ("a negative token quota", f"{resources}.tokenQuota", -1),
        ("a negative percent", f"{gpu}.computePercent", -10),
        ("a negative deadline", "spec.activeDeadline", "-1h"),
        ("zero CPU", f"{resources}.cpu", "0"),
        ("zero memory", f"{resources}.memory", "0Mi"),
        ("zero GPUs", f"{gpu}.count", 0),
        ("a zero token quota", f"{resources}.tokenQuota", 0),
        ("zero percent", f"{gpu}.computePercent", 0),
        ("a zero deadline", "spec.activeDeadline", "0s"),
        ("more than a whole GPU", f"{gpu}.computePercent", 101),
        ("more than any GPU's memory", f"{gpu}.memoryLimit", "900Gi"),
        ("an amount beyond 2^53", f"{resources}.tokenQuota", 2**53),
        ("an amount beyond 64 bits", f"{resources}.tokenQuota", 10**30),
        ("an unknown GPU type", f"{gpu}.type", "Z9000"),
        ("a GPU type in lower case", f"{gpu}.type", "a100"),
        ("an unknown task type", "spec.taskType", "party"),
        ("an unknown API version", "apiVersion", "orca.ai/v9"),
        ("an empty command", "spec.command", []),
        ("an empty image", "spec.image", ""),
        ("NUL in a name", "metadata.name", "a\0b"),
        ("a newline in an image", "spec.image", "busybox\n"),
        ("NUL in an argument", "spec.command.0", "/bin/\0true"),
        ("NUL in an env value", "spec.env.0.value", "a\0b"),
        ("an escape in a label", "metadata.labels.team", "a\x1b[31m"),
        ("a name with a dot", "metadata.name", "a.task"),
        ("a name with a space", "metadata.name", "a task"),
        ("a name with a star", "metadata.name", "a*"),
        ("a name with >", "metadata.name", ">"),
        ("a name in upper case", "metadata.name", "A-Task"),
        ("a name of 64 letters", "metadata.name", "a" * 64),
        ("a queue with a dot", "spec.schedulerHints.queue", "a.b"),
        ("a namespace with a star", "metadata.namespace", "team-*"),
        ("an env that the node sets", "spec.env.0.name", "NVIDIA_VISIBLE_DEVICES"),
        ("an env with =", "spec.env.0.name", "A=B"),
    ]
    found = [Bad(name, IN_BODY + path, with_value(path, value)) for name, path, value in table]
    raw = [
        ("NaN", f"{resources}.tokenQuota", "NaN"),
        ("1e309", f"{resources}.tokenQuota", "1e309"),
        ("-1e309", f"{resources}.tokenQuota", "-1e309"),
        ("Infinity", f"{gpu}.count", "Infinity"),
    ]
    return found + [Bad(name, IN_BODY + path, with_raw(path, text)) for name, path, text in raw]


def bodies() -> list[Bad]:
    """Bodies that are no event, or not the one that the subject says."""
    good = submitted(manifest())
    extra = manifest() | {"sepc": {}}
    lacking = {key: value for key, value in manifest().items() if key != "spec"}
    return [
        Bad("nothing", "body", b""),
        Bad("no JSON", "body", b"hello"),
        Bad("half of it", "body", good[:-10]),
        Bad("no UTF-8", "body", b'{"type":"\xff\xfe"}'),
        Bad("a lone surrogate", "body", with_value("metadata.name", "\ud800")),
        Bad("a number of 5000 digits", "body", with_raw("spec.resources.tokenQuota", "9" * 5000)),
        Bad("a list", "body", b"[]"),
        Bad("null", "body", b"null"),
        Bad("100,000 brackets", "body", b"[" * 100_000),
        Bad("protobuf-like bytes", "body", bytes(range(256))),
        Bad("no type", "type", json.dumps({"data": {"manifest": manifest()}}).encode()),
        Bad("no data", "data", b'{"type":"orca.TaskSubmitted.v1"}'),
        Bad("no manifest", "data.manifest", event({})),
        Bad("no spec", "data.manifest.spec", submitted(lacking)),
        Bad("a key that is not known", "data.manifest.sepc", submitted(extra)),
        Bad("another type", "type", event({"reason": ""}, "orca.TaskCancelRequested.v1")),
        Bad("an unknown version", "type", event({"manifest": manifest()}, "orca.TaskSubmitted.v2")),
        Bad("a type of another form", "type", event({"manifest": manifest()}, "TaskSubmitted")),
        Bad(
            "an envelope that names another subject", "subject",
            event({"manifest": manifest()}, subject="orca.x.task.y.client.bob.TaskSubmitted"),
        ),
        Bad("200 KiB", "body", with_value("spec.env.0.value", "x" * 200 * KIB)),
        Bad("an argument of 20 KiB", "data.manifest.spec.command.0",
            with_value("spec.command.0", "x" * 20 * KIB)),
        Bad("another namespace than the subject's", "metadata.namespace",
            with_value("metadata.namespace", "team-beta")),
    ]  # fmt: skip


def subjects() -> list[Bad]:
    """Subjects that a stream takes and that are wrong all the same."""
    good = submitted(manifest())
    at = "orca.team-alpha.task.{id}.client.alice.TaskSubmitted"

    def to(name: str, field_: str, old: str, new: str, answer: str = LETTER) -> Bad:
        return Bad(name, field_, good, answer, at.replace(old, new))

    return [
        to("a namespace in upper case", "namespace", "team-alpha", "Team-Alpha"),
        to("a user in upper case", "party", "alice", "Alice"),
        to("a user with a quote", "party", "alice", "al'ice"),
        to("an id that is no UUID", "id", "{id}", "job-1"),
        to("an id in upper case", "id", "{id}", str(uuid.uuid4()).upper().replace("1", "A")),
        to("an unknown kind", "kind", ".task.", ".pod."),
        to("an event in lower case", "event", "TaskSubmitted", "submitted"),
        to("an event about another kind", "subject.kind", "task.{id}", "account.a", REFUSED),
        to("an unknown event", "subject.event", "TaskSubmitted", "TaskFrobbed", REFUSED),
        to("an event of another role", "subject.role", "TaskSubmitted", "QuotaReserved", REFUSED),
        to("a namespace of the cluster", "metadata.namespace", "team-alpha", "_cluster", REJECTED),
        to("a namespace nobody made", "metadata.namespace", "team-alpha", "team-none", REJECTED),
    ]


def headers() -> list[Bad]:
    """Good submissions under headers that mean something else elsewhere: they run."""
    table = {
        "Status 404": {"Status": "404", "Description": "No Messages"},
        "Status 408": {"Status": "408", "Description": "Request Timeout"},
        "Status 100": {"Status": "100", "Description": "Idle Heartbeat"},
        "Status 503": {"Status": "503"},
        "a status that is none": {"Status": "fine"},
        "the headers of a direct get": {
            "Nats-Stream": "ADMIN", "Nats-Subject": "orca.x", "Nats-Sequence": "1",
            "Nats-Time-Stamp": "1970-01-01T00:00:00Z", "Nats-Num-Pending": "0",
        },
        "the headers of a pull": {"Nats-Pending-Messages": "9", "Nats-Pending-Bytes": "9"},
        "a message id": {"Nats-Msg-Id": "0"},
        "a stalled consumer": {"Nats-Consumer-Stalled": "$JS.FC.x"},
        "a wrong traceparent": {"traceparent": "00-zz", "tracestate": "\u00e9"},
        "a header of 60 KiB": {"X": "x" * 60 * KIB},
        "many headers": {f"X-{number}": "y" for number in range(500)},
    }  # fmt: skip
    return [Bad(n, "", submitted(manifest()), RESERVED, headers=h) for n, h in table.items()]


def requests() -> list[Bad]:
    """Requests and settings that are in order as bytes, or nearly, and are refused."""
    cancel = "orca.team-alpha.task.{id}.client.alice.TaskCancelRequested"
    quota = "orca.team-alpha.account.team-alpha.admin.root.QuotaSet"
    limit = {"dimension": "tasks", "limit": 5, "period": "concurrent"}

    def setting(name: str, field_: str, **change: Any) -> Bad:
        return Bad(name, field_, event(limit | change, "orca.QuotaSet.v1"), REFUSED, quota)

    no_cancel = event({"reason": "x"}, "orca.TaskCancelRequested.v1")
    listed = event({"reason": []}, "orca.TaskCancelRequested.v1")
    return [
        Bad("the cancel of nothing", "", no_cancel, REFUSED, cancel),
        Bad("a cancel with a list", "data.reason", listed, REFUSED, cancel),
        setting("a negative limit", "data.limit", limit=-1),
        setting("a text as limit", "data.limit", limit="5"),
        setting("a fraction as limit", "data.limit", limit=0.5),
        setting("an unknown dimension", "data.dimension", dimension="bananas"),
        setting("a GPU type that is not", "dimension", dimension="gpu_milli:Z9"),
        setting("an unknown period", "data.period", period="fortnight"),
        setting("another period than supported", "period", period="total"),
        Bad("a NaN limit", "data.limit",
            event(limit | {"limit": RAW}, "orca.QuotaSet.v1").replace(b'"@raw@"', b"NaN"),
            REFUSED, quota),
        Bad("a quota of another account", "subject.id", event(limit, "orca.QuotaSet.v1"), REFUSED,
            "orca.team-alpha.account.team-beta.admin.root.QuotaSet"),
    ]  # fmt: skip


def all_bad() -> list[Bad]:
    """The whole table; names are unique."""
    makers: list[Callable[[], list[Bad]]] = [values, bodies, subjects, headers, requests]
    found = [bad for make in makers for bad in make()]
    assert len({bad.name for bad in found}) == len(found)
    return found
