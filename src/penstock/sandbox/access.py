"""Access control of the sandbox: API key, bearer tokens, no robots."""

from base64 import b64decode
from binascii import Error as Base64Error
from secrets import token_urlsafe
from threading import Lock

from penstock.sandbox.messages import (
    SandboxRequest,
    SandboxResponse,
    error_response,
    json_response,
    parse_parameters,
    text_response,
)
from penstock.sandbox.options import SandboxOptions

_EMPTY_KEYS = ("", "test", "null")
_ROBOTS = ("robot", "crawler", "spider", "slurp", "googlebot", "apache-httpclient")


class KeyAccess:
    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._expires_at_by_token: dict[str, float] = {}
        self._lock = Lock()

    @property
    def tokens_issued(self) -> int:
        with self._lock:
            return len(self._expires_at_by_token)

    def refuse(self, request: SandboxRequest) -> SandboxResponse | None:
        """Return the error response if this request is not allowed."""
        agent = request.headers.get("user-agent", "").lower()
        if any(robot in agent for robot in _ROBOTS):
            return error_response(
                503, "API requests by robots are temporarily disabled."
            )
        if self._options.key is not None and (refusal := self._check_key(request)):
            return refusal
        if self._options.oauth and not self._has_token(request):
            return SandboxResponse(
                status=401,
                body=b'{"error":"invalid_token"}',
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
        return None

    def issue_token(self, request: SandboxRequest) -> SandboxResponse:
        """Respond to a client-credentials request, by form or basic authentication."""
        form = parse_parameters(request.body.decode("latin-1"))
        expected = (self._options.client_id, self._options.client_secret)
        given = (form.get("client_id"), form.get("client_secret"))
        if form.get("grant_type") != "client_credentials":
            return json_response({"error": "unsupported_grant_type"}, status=400)
        if expected not in (given, _basic(request)):
            return json_response({"error": "invalid_client"}, status=401)
        token = token_urlsafe(16)
        life = self._options.token_life.total_seconds()
        with self._lock:
            self._expires_at_by_token[token] = request.at + life
        return json_response(
            {"access_token": token, "token_type": "Bearer", "expires_in": int(life)}
        )

    def _check_key(self, request: SandboxRequest) -> SandboxResponse | None:
        # The query wins over the header, even if only the header has a valid key.
        key = request.parameters.get("key", request.headers.get("x-api-key", ""))
        if key == self._options.key:
            return None
        if key in _EMPTY_KEYS:
            return text_response(
                403,
                "You must specify an API key using the key query parameter "
                "or x-api-key header.",
            )
        return text_response(403, "Invalid API key.")

    def _has_token(self, request: SandboxRequest) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        with self._lock:
            expires_at = self._expires_at_by_token.get(token, request.at)
        return scheme.lower() == "bearer" and request.at < expires_at


def _basic(request: SandboxRequest) -> tuple[str, str] | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = b64decode(text).decode().partition(":")
    except (Base64Error, UnicodeDecodeError):
        return None
    return name, secret
