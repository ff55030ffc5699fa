"""Who may ask: the API key, bearer tokens, and no robots."""

from base64 import b64decode
from binascii import Error as Base64Error
from secrets import token_urlsafe
from threading import Lock

from penstock.sandbox.exchange import (
    Answer,
    Call,
    error_answer,
    json_answer,
    parse_parameters,
    text_answer,
)
from penstock.sandbox.options import SandboxOptions

_NO_KEYS = ("", "test", "null")
_ROBOTS = ("robot", "crawler", "spider", "slurp", "googlebot", "apache-httpclient")


class Access:
    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._expires_at_by_token: dict[str, float] = {}
        self._lock = Lock()

    @property
    def tokens_issued(self) -> int:
        with self._lock:
            return len(self._expires_at_by_token)

    def refuse(self, call: Call) -> Answer | None:
        """Return the refusal that this call deserves, if any."""
        agent = call.headers.get("user-agent", "").lower()
        if any(robot in agent for robot in _ROBOTS):
            return error_answer(503, "API requests by robots are temporarily disabled.")
        if self._options.key is not None and (refusal := self._check_key(call)):
            return refusal
        if self._options.oauth and not self._has_token(call):
            return Answer(
                status=401,
                body=b'{"error":"invalid_token"}',
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
        return None

    def issue_token(self, call: Call) -> Answer:
        """Answer a client-credentials request, by form or basic authentication."""
        form = parse_parameters(call.body.decode("latin-1"))
        known = (self._options.client_id, self._options.client_secret)
        given = (form.get("client_id"), form.get("client_secret"))
        if form.get("grant_type") != "client_credentials":
            return json_answer({"error": "unsupported_grant_type"}, status=400)
        if known not in (given, _basic(call)):
            return json_answer({"error": "invalid_client"}, status=401)
        token = token_urlsafe(16)
        life = self._options.token_life.total_seconds()
        with self._lock:
            self._expires_at_by_token[token] = call.at + life
        return json_answer(
            {"access_token": token, "token_type": "Bearer", "expires_in": int(life)}
        )

    def _check_key(self, call: Call) -> Answer | None:
        # The query wins over the header, even when it is the worse of the two.
        key = call.parameters.get("key", call.headers.get("x-api-key", ""))
        if key == self._options.key:
            return None
        if key in _NO_KEYS:
            return text_answer(
                403,
                "You must specify an API key using the key query parameter "
                "or x-api-key header.",
            )
        return text_answer(403, "Invalid API key.")

    def _has_token(self, call: Call) -> bool:
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        with self._lock:
            expires_at = self._expires_at_by_token.get(token, call.at)
        return scheme.lower() == "bearer" and call.at < expires_at


def _basic(call: Call) -> tuple[str, str] | None:
    scheme, _, text = call.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = b64decode(text).decode().partition(":")
    except (Base64Error, UnicodeDecodeError):
        return None
    return name, secret
