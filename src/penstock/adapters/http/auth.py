"""Authenticate requests: with fixed headers, or with a token shared by all threads."""

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

from penstock.adapters.http.client import HttpClient, HttpRequest, HttpResponse
from penstock.adapters.http.response_status import is_success, snippet, unavailable
from penstock.adapters.net.http_dates import parse_retry_after
from penstock.domain.redaction import Redactor
from penstock.domain.source import Auth, AuthKind, basic_token
from penstock.errors import (
    AccessRefused,
    Misconfigured,
    PenstockError,
    SourceUnavailable,
)

MAX_TOKEN_BYTES = 1024 * 1024
# seconds before its end at which a token is renewed, so that no request outlives it
RENEWAL_MARGIN = 60.0
# what a header may contain
VISIBLE = re.compile(r"[\x21-\x7e]+")
REFUSALS = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
)


class Credentials(Protocol):
    """The credentials of requests to the provider."""

    @abstractmethod
    def sign(self) -> Mapping[str, str]:
        """Return the headers that authenticate one request."""
        ...

    @abstractmethod
    def accept(self, signed: Mapping[str, str]) -> None:
        """Note that the provider accepted a request with these headers."""
        ...

    @abstractmethod
    def refuse(self, signed: Mapping[str, str]) -> bool:
        """Note that it did not; return whether new headers may help."""
        ...


def build_credentials(
    auth: Auth | None,
    *,
    client: HttpClient,
    timeout: timedelta,
    redactor: Redactor,
) -> Credentials:
    """Build the credentials of the declared type."""
    if auth is None:
        return FixedCredentials({})
    match auth.type:
        case AuthKind.BEARER:
            return FixedCredentials({"Authorization": f"Bearer {auth.token}"})
        case AuthKind.BASIC:
            token = basic_token(auth.username, auth.password)
            return FixedCredentials({"Authorization": f"Basic {token}"})
        case AuthKind.OAUTH2:
            endpoint = TokenEndpoint(auth, client, timeout, redactor)
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
    """The response of a token endpoint; some send the number as a string."""

    access_token: str
    expires_in: float | str | None = None


class TokenEndpoint:
    """Fetches OAuth2 tokens by the client credentials grant."""

    def __init__(
        self,
        auth: Auth,
        client: HttpClient,
        timeout: timedelta,
        redactor: Redactor,
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
        self._request = HttpRequest(
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
        self._redactor = redactor

    def fetch(self) -> Token:
        """Return a new token, or raise."""
        response = self._client.send(
            self._request, timeout=self._timeout, max_bytes=MAX_TOKEN_BYTES
        )
        if response.status in REFUSALS:
            message = f"no access token: {snippet(response.body, self._redactor)}"
            raise AccessRefused(response.status, body=message)
        if not is_success(response.status):
            raise unavailable(
                f"the token endpoint returned {response.status}",
                parse_retry_after(response.headers, datetime.now(UTC)),
            )
        token = parse_token(response)
        self._redactor.add_issued(token.access_token)
        return token


def parse_token(response: HttpResponse) -> Token:
    try:
        token = msgspec.json.decode(response.body, type=Token)
    except (ValueError, RecursionError):
        # the response may contain half a token: nothing of it is shown
        raise SourceUnavailable("the token endpoint sent no token") from None
    if VISIBLE.fullmatch(token.access_token) is None:
        raise SourceUnavailable("the token endpoint sent an invalid token")
    return token


class ClientCredentials(Credentials):
    """One token for all threads: the first that finds it missing fetches it for all."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = Lock()
        self._headers: Mapping[str, str] | None = None
        self._ends_at: float | None = None
        self._is_accepted = False
        self._fetches = 0
        self._failure: PenstockError | None = None

    @override
    def sign(self) -> Mapping[str, str]:
        fetches_before = self._fetches
        with self._lock:
            if self._headers is not None and not self._is_expired():
                return self._headers
            if self._fetches != fetches_before and self._failure is not None:
                # another thread failed meanwhile: trying again would only wait again
                raise self._failure.with_traceback(None)
            return self._renew()

    @override
    def accept(self, signed: Mapping[str, str]) -> None:
        if signed is self._headers:
            self._is_accepted = True

    @override
    def refuse(self, signed: Mapping[str, str]) -> bool:
        with self._lock:
            if signed is not self._headers:
                return True
            # if it was never accepted, a new one would be refused, too
            was_accepted = self._is_accepted
            self._headers = None
            return was_accepted

    def _is_expired(self) -> bool:
        return self._ends_at is not None and monotonic() >= self._ends_at

    def _renew(self) -> Mapping[str, str]:
        self._headers, self._is_accepted, self._failure = None, False, None
        try:
            token = self._endpoint.fetch()
        except PenstockError as error:
            self._failure = error
            raise
        finally:
            self._fetches += 1
        lifetime = parse_lifetime(token.expires_in)
        self._ends_at = None
        if lifetime is not None:
            margin = min(RENEWAL_MARGIN, lifetime / 10)
            self._ends_at = monotonic() + lifetime - margin
        self._headers = {"Authorization": f"Bearer {token.access_token}"}
        return self._headers


def parse_lifetime(expires_in: float | str | None) -> float | None:
    """Return the lifetime in seconds; None lasts until the token is refused."""
    try:
        return None if expires_in is None else max(float(expires_in), 0.0)
    except ValueError:
        return None
