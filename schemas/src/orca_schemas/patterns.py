"""What texts may look like. Each pattern has a remedy for people: most cannot read a pattern."""

from __future__ import annotations

LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
POSITION = r"^[A-Z][A-Z_]{1,31}@[0-9]{1,20}#[0-9]{1,20}$"
DIMENSION = r"^(gpu_milli(:[A-Za-z0-9]{1,32})?|gpu_memory_mib|cpu_milli|memory_mib|tasks|tokens)$"
MODEL_NAME = r"^[^\x00-\x20\x7f]+$"
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]+$"
ARGUMENT = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
IMAGE = r"^[!-,.-~][!-~]*$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
SHA256 = r"^[0-9a-f]{64}$"
DIGEST = r"^[0-9a-f]{32}$"
TRACEPARENT = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"

LABEL_REMEDY = "use 1 to 63 of a-z, 0-9 and '-', beginning and ending in a letter or digit"

REMEDIES = {
    LABEL: LABEL_REMEDY,
    POSITION: "write it as STREAM@epoch#sequence",
    DIMENSION: (
        "use one of gpu_milli, gpu_milli:<GPU type>, gpu_memory_mib, cpu_milli, memory_mib, "
        "tasks, tokens"
    ),
    MODEL_NAME: "leave out spaces and control characters",
    PRINTABLE: "leave out line breaks and control characters",
    ARGUMENT: "leave out control characters other than tab and line breaks",
    IMAGE: "write an image reference such as pytorch-cuda:v2.8, without spaces",
    ENV_NAME: "use letters, digits and '_', not beginning with a digit",
    SHA256: "write the 64 lower-case hexadecimal digits of a SHA-256",
    DIGEST: "write 32 lower-case hexadecimal digits",
    TRACEPARENT: "write it as W3C Trace Context says: 00-<32 hex>-<16 hex>-<2 hex>",
}
