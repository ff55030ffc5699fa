"""Sign requests: with fixed headers, or with a token that is renewed for all threads.

`sign` gives the headers of one request; `accept` and `refuse` tell what became of them.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import Protocol
from urllib.parse import urlencode

import msgspec
from typing_extensions import override

from penstock.adapters.http.client import Answer, Client, Request
from penstock.adapters.http.hiding import Hiding, basic_token
from penstock.adapters.http.statuses import is_success
from penstock.adapters.net.dates import retry_after
from penstock.domain.source import Auth, AuthKind
from penstock.errors import (
    AccessStopped,
    Misconfigured,
    PenstockError,
    SourceUnavailable,
)

TOKEN_BYTES = 1024 * 1024
# a token is renewed before it ends, or a request could carry it past its end
MARGIN = 60.0
# what may stand in a header
VISIBLE = re.compile(r"[\x21-\x7e]+")
STOPPING = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
)


class Credentials(Protocol):
    """What proves to the provider who asks."""

    @abstractmethod
    def sign(self) -> Mapping[str, str]:
        """Return the headers that sign one request."""
        ...

    @abstractmethod
    def accept(self, signed: Mapping[str, str]) -> None:
        """Note that the provider took a request that was signed so."""
        ...

    @abstractmethod
    def refuse(self, signed: Mapping[str, str]) -> bool:
        """Note that it did not; return whether signing anew may help."""
        ...


def credentials_of(
    auth: Auth | None, *, client: Client, timeout: timedelta, hiding: Hiding
) -> Credentials:
    """Return the credentials of a declared kind."""
    if auth is None:
        return FixedCredentials({})
    match auth.type:
        case AuthKind.BEARER:
            return FixedCredentials({"Authorization": f"Bearer {auth.token}"})
        case AuthKind.BASIC:
            return FixedCredentials({"Authorization": f"Basic {basic_token(auth)}"})
        case AuthKind.OAUTH2:
            endpoint = TokenEndpoint(auth, client, timeout, hiding)
            return ClientCredentials(endpoint)


class FixedCredentials(Credentials):
    """Headers that never change."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    @override
    def sign(self) -> Mapping[str, str]:
        return self._headers

    @override
    def accept(self, signed: Mapping[str, str]) -> None:
        return

    @override
    def refuse(self, signed: Mapping[str, str]) -> bool:
        return False


class Token(msgspec.Struct):
    """What a token endpoint answers; some write the number as a text."""

    access_token: str
    expires_in: float | str | None = None


class TokenEndpoint:
    """Fetches OAuth2 tokens by the client credentials grant."""

    def __init__(
        self, auth: Auth, client: Client, timeout: timedelta, hiding: Hiding
    ) -> None:
        if not auth.token_url:
            raise Misconfigured("source.auth.token_url is missing")
        form = {
            "grant_type": "client_credentials",
            "client_id": auth.client_id,
            "client_secret": auth.client_secret,
        }
        if auth.scope:
            form["scope"] = auth.scope
        self._request = Request(
            method="POST",
            url=auth.token_url,
            headers={
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            body=urlencode(form).encode(),
        )
        self._client = client
        self._timeout = timeout
        self._hiding = hiding

    def fetch(self) -> Token:
        """Return a new token, or raise what its absence means."""
        answer = self._client.send(
            self._request, timeout=self._timeout, max_bytes=TOKEN_BYTES
        )
        if answer.status in STOPPING:
            said = self._hiding.snippet(answer.body)
            raise AccessStopped(answer.status, body=f"no access token: {said}")
        if not is_success(answer.status):
            raise SourceUnavailable(
                f"the token endpoint answered {answer.status}",
                retry_after=retry_after(answer.headers, datetime.now(UTC)),
            )
        token = read_token(answer)
        self._hiding.learn(token.access_token)
        return token


def read_token(answer: Answer) -> Token:
    try:
        token = msgspec.json.decode(answer.body, type=Token)
    except (ValueError, RecursionError):
        # the answer may hold half a token: nothing of it is shown
        raise SourceUnavailable("the token endpoint sent no token") from None
    if VISIBLE.fullmatch(token.access_token) is None:
        raise SourceUnavailable("the token endpoint sent what no header can carry")
    return token


class ClientCredentials(Credentials):
    """One token for all threads: whoever finds it missing fetches it for the others."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = Lock()
        self._signed: Mapping[str, str] | None = None
        self._ends: float | None = None
        self._is_accepted = False
        self._fetches = 0
        self._failure: PenstockError | None = None

    @override
    def sign(self) -> Mapping[str, str]:
        before = self._fetches
        with self._lock:
            if self._signed is not None and not self._is_over():
                return self._signed
            if self._fetches != before and self._failure is not None:
                # it failed while we waited: trying again would only wait again
                raise self._failure.with_traceback(None)
            return self._renew()

    @override
    def accept(self, signed: Mapping[str, str]) -> None:
        if signed is self._signed:
            self._is_accepted = True

    @override
    def refuse(self, signed: Mapping[str, str]) -> bool:
        with self._lock:
            if signed is not self._signed:
                return True
            # refused from the start, another one would be refused too
            is_old = self._is_accepted
            self._signed = None
            return is_old

    def _is_over(self) -> bool:
        return self._ends is not None and monotonic() >= self._ends

    def _renew(self) -> Mapping[str, str]:
        self._signed, self._is_accepted, self._failure = None, False, None
        try:
            token = self._endpoint.fetch()
        except PenstockError as error:
            self._failure = error
            raise
        finally:
            self._fetches += 1
        lasts = seconds(token.expires_in)
        self._ends = (
            None if lasts is None else monotonic() + lasts - min(MARGIN, lasts / 10)
        )
        self._signed = {"Authorization": f"Bearer {token.access_token}"}
        return self._signed


def seconds(told: float | str | None) -> float | None:
    """Read how long a token lasts; without a number it lasts until it is refused."""
    try:
        return None if told is None else max(float(told), 0.0)
    except ValueError:
        return None
