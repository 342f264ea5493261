"""ClickHouse's error codes, their HTTP statuses and the text its clients parse."""

import re
from http import HTTPStatus

SYNTAX_ERROR = 62
UNSUPPORTED_METHOD = 1
INCORRECT_DATA = 117
NOT_IMPLEMENTED = 48
ACCESS_DENIED = 497
TOO_MANY_SIMULTANEOUS_QUERIES = 202
QUERY_IS_TOO_LARGE = 229
INTO_OUTFILE_NOT_ALLOWED = 358
BAD_QUERY_PARAMETER = 457
UNKNOWN_SETTING = 115
AUTHENTICATION_FAILED = 516
ABORTED = 236
MEMORY_LIMIT_EXCEEDED = 241
STD_EXCEPTION = 1001

# From ClickHouse's src/Server/HTTP/exceptionCodeToHTTPStatus.cpp; every other code is a 500.
_BAD_REQUEST = {
    6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123, 167, 168, 223, 321, 376, 427,
    441, 675, 676,
}  # fmt: skip
_NOT_FOUND = {46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511}
_FORBIDDEN = {192, 193, 497, 512, 516}

_STATUS: dict[int, HTTPStatus] = {
    **dict.fromkeys(_BAD_REQUEST, HTTPStatus.BAD_REQUEST),
    **dict.fromkeys(_NOT_FOUND, HTTPStatus.NOT_FOUND),
    **dict.fromkeys(_FORBIDDEN, HTTPStatus.FORBIDDEN),
    194: HTTPStatus.UNAUTHORIZED,
    QUERY_IS_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NOT_IMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    159: HTTPStatus.REQUEST_TIMEOUT,
    76: HTTPStatus.SERVICE_UNAVAILABLE,
    209: HTTPStatus.SERVICE_UNAVAILABLE,
    439: HTTPStatus.SERVICE_UNAVAILABLE,
    # These two are 500 there; clients repeat a read only on 503, and here it is right to.
    TOO_MANY_SIMULTANEOUS_QUERIES: HTTPStatus.SERVICE_UNAVAILABLE,
    ABORTED: HTTPStatus.SERVICE_UNAVAILABLE,
}

_CODE = re.compile(r"Code: (\d+)\. ")
_VERSION = re.compile(r"\s*\(version [^)]*\)\.?\s*$")


class ServerError(Exception):
    """What the client is told: ``code`` and ``text`` ("Code: N. DB::Exception: ... (NAME)")."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status ClickHouse gives to this code."""
        return _STATUS.get(self.code, HTTPStatus.INTERNAL_SERVER_ERROR)

    def body(self, version: str) -> bytes:
        """The response body, one line, with the engine's version at its end."""
        return f"{self.text} (version {version})\n".encode(errors="replace")


def refusal(code: int, name: str, message: str) -> ServerError:
    """An error of this server's own, in the engine's wording."""
    return ServerError(code, f"Code: {code}. DB::Exception: {message} ({name})")


def from_engine(message: str) -> ServerError:
    """Read the code out of an engine's message; text without one becomes STD_EXCEPTION."""
    found = _CODE.search(message)
    if found is None:
        return refusal(STD_EXCEPTION, "STD_EXCEPTION", message.strip())
    text = _VERSION.sub("", message[found.start() :].strip())
    return ServerError(int(found.group(1)), text)
