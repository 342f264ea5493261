"""Content encodings of requests and responses.

Every frame of a body is read, not only the first: ``clickhouse-connect`` sends one LZ4 or
Zstandard frame per block.
"""

import gzip
import io
import zlib
from collections.abc import Callable
from typing import Protocol, cast

import lz4.frame
import zstandard

from orca_embedded.clickhouse.errors import (
    INCORRECT_DATA,
    NOT_IMPLEMENTED,
    QUERY_IS_TOO_LARGE,
    ServerError,
    refusal,
)

_CHUNK_BYTES = 1024 * 1024
# Both ends are on one machine: a fast level costs less than the bytes it would still save.
_FAST_LEVEL = 1


class _Reader(Protocol):
    """Hands out a body piece by piece, b"" at its end; EOFError if that comes too early."""

    def read(self, size: int, /) -> bytes: ...


class _DeflateReader:
    """The library has no bounded reader for this encoding."""

    def __init__(self, body: bytes) -> None:
        self._inner = zlib.decompressobj()
        self._left = body

    def read(self, size: int, /) -> bytes:
        out = self._inner.decompress(self._left, size)
        self._left = self._inner.unconsumed_tail
        if not out and not self._inner.eof:
            raise EOFError("it ends before its end marker")
        return out


class _ZstdReader:
    """The library's own reader takes a body cut short for a whole one.

    A frame's output cannot be bounded, so its input is: 1 KiB gives 32 MiB at the very most.
    """

    _INPUT_BYTES = 1024

    def __init__(self, body: bytes) -> None:
        self._left = memoryview(body)
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def read(self, _size: int, /) -> bytes:
        while self._left:
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            piece, rest = self._left[: self._INPUT_BYTES], self._left[self._INPUT_BYTES :]
            out = self._frame.decompress(piece)
            unused_bytes = len(self._frame.unused_data)
            self._left = self._left[len(piece) - unused_bytes :] if unused_bytes else rest
            if out:
                return out
        if not self._frame.eof:
            raise EOFError("it ends in the middle of a frame")
        return b""


_OPEN: dict[str, Callable[[bytes], _Reader]] = {
    "gzip": lambda body: gzip.GzipFile(fileobj=io.BytesIO(body)),
    "deflate": _DeflateReader,
    "lz4": lambda body: cast(_Reader, lz4.frame.LZ4FrameFile(io.BytesIO(body))),
    "zstd": _ZstdReader,
}
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "lz4": lambda data: cast(bytes, lz4.frame.compress(data)),
    "zstd": lambda data: zstandard.ZstdCompressor(level=_FAST_LEVEL).compress(data),
    "gzip": lambda data: gzip.compress(data, compresslevel=_FAST_LEVEL),
    "deflate": lambda data: zlib.compress(data, level=_FAST_LEVEL),
}


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body without its content encoding, at most ``max_bytes`` long.

    Raises ServerError: NOT_IMPLEMENTED for an unknown encoding, QUERY_IS_TOO_LARGE over the
    bound, INCORRECT_DATA for bytes that are not what the header says.
    """
    if not body or encoding in {"", "identity"}:
        return body
    opener = _OPEN.get(encoding)
    if opener is None:
        raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", _unknown(encoding))
    try:
        return _read_bounded(opener(body), max_bytes)
    except (OSError, EOFError, RuntimeError, zlib.error, zstandard.ZstdError) as error:
        message = f"The body is not valid {encoding}: {error}"
        raise refusal(INCORRECT_DATA, "INCORRECT_DATA", message) from error


def _read_bounded(stream: _Reader, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    total_bytes = 0
    while chunk := stream.read(_CHUNK_BYTES):
        total_bytes += len(chunk)
        if total_bytes > max_bytes:
            raise body_too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def compress(data: bytes, encoding: str) -> bytes:
    """The data in one of the encodings that ``negotiate`` returns; "" leaves it as it is."""
    return _COMPRESS[encoding](data) if encoding else data


def negotiate(accept_encoding: str) -> str:
    """The cheapest encoding that the client accepts, or ""."""
    accepted = {part.split(";")[0].strip().lower() for part in accept_encoding.split(",")}
    return next((name for name in _COMPRESS if name in accepted), "")


def body_too_large(max_bytes: int) -> ServerError:
    """The error for a request body, compressed or not, over the server's bound."""
    message = f"The request body is larger than --max-body-bytes ({max_bytes})"
    return refusal(QUERY_IS_TOO_LARGE, "QUERY_IS_TOO_LARGE", message)


def _unknown(encoding: str) -> str:
    return f"Unknown Content-Encoding '{encoding}'; known: {', '.join(_OPEN)}"
