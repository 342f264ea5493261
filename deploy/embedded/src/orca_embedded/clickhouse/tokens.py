"""The tokens of a ClickHouse statement, with comments and blanks left out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orca_embedded.clickhouse.errors import QUERY_IS_TOO_LARGE, refusal

# Above the engine's own default (max_query_size, 256 KiB); the data of an INSERT does not count.
MAX_STATEMENT_BYTES = 4 * 1024 * 1024

_TOKEN = re.compile(
    rb"""(?P<blank>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?\*/)
       | (?P<string>'(?:[^'\\]|\\.|'')*')
       | (?P<heredoc>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
       | (?P<word>[A-Za-z_]\w*)
       | (?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
       | (?P<number>\d[\w.]*)
       | (?P<mark>.)""",
    re.DOTALL | re.VERBOSE,
)
_OPENING, _CLOSING = {b"(", b"[", b"{"}, {b")", b"]", b"}"}


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its kind, upper-case text without quotes, bracket depth, first and past byte."""

    kind: str
    text: bytes
    depth: int
    start: int
    end: int

    def is_word(self, *words: bytes) -> bool:
        """Whether this is one of the given keywords, outside brackets and quotes."""
        return self.kind == "word" and self.depth == 0 and self.text in words

    def is_mark(self, mark: bytes) -> bool:
        """Whether this is the given punctuation character."""
        return self.kind == "mark" and self.text == mark


def tokenize(sql: bytes) -> Iterator[Token]:
    """Yield the tokens one by one; raises ServerError past ``MAX_STATEMENT_BYTES``.

    A bracket has the depth of the text around it.
    """
    depth = 0
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup or "mark", match.group()
        if match.end() > MAX_STATEMENT_BYTES:
            message = f"The statement is longer than {MAX_STATEMENT_BYTES} bytes"
            raise refusal(QUERY_IS_TOO_LARGE, "QUERY_IS_TOO_LARGE", message)
        if kind == "blank":
            continue
        depth -= text in _CLOSING
        yield Token(kind, _plain(kind, text), depth, match.start(), match.end())
        depth += text in _OPENING


def _plain(kind: str, text: bytes) -> bytes:
    return text.strip(b'`"').upper() if kind in {"word", "quoted"} else text
