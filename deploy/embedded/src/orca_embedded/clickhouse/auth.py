"""Who asks: ClickHouse's three ways to name a user, in its order of precedence."""

import base64
import binascii
import hmac
from collections.abc import Mapping

from orca_embedded.clickhouse.errors import AUTHENTICATION_FAILED, refusal
from orca_embedded.clickhouse.parameters import Ask


def check(headers: Mapping[str, str], ask: Ask, user: str, password: str) -> None:
    """Raise ServerError AUTHENTICATION_FAILED unless the request names this user and password."""
    given_user, given_password = _given(headers, ask)
    # Both are compared in full, so that the time taken tells nothing.
    user_matches = hmac.compare_digest((given_user or "default").encode(), user.encode())
    password_matches = hmac.compare_digest(given_password.encode(), password.encode())
    if not (user_matches and password_matches):
        message = (
            f"{given_user or 'default'}: Authentication failed: password is incorrect, "
            "or there is no user with such name"
        )
        raise refusal(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", message)


def _given(headers: Mapping[str, str], ask: Ask) -> tuple[str, str]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", ""), headers.get("X-ClickHouse-Key", "")
    if "Authorization" in headers:
        return _basic(headers["Authorization"])
    return ask.user, ask.password


def _basic(header: str) -> tuple[str, str]:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "basic":
        message = f"The {scheme} authentication scheme is not available; use Basic"
        raise refusal(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", message)
    try:
        user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        message = "The Authorization header is not valid Basic authentication"
        raise refusal(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", message) from error
    return user, password
