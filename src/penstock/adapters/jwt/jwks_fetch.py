"""Fetch the key set of an issuer, within a deadline and a size limit."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from penstock.adapters.net.http_deadlines import CHUNK, timed_pools

FETCH_TIMEOUT = timedelta(seconds=5)
MAX_BYTES = 1024 * 1024
HEADERS = {
    "Accept": "application/jwk-set+json, application/json",
    # an uncompressed response cannot expand
    "Accept-Encoding": "identity",
    "User-Agent": "penstock",
}


class NotFetched(Exception):
    """The fetch failed; the message continues after the name of the host."""


class Fetch:
    """Fetches one URL; redirects are not followed, certificates are checked."""

    def __init__(
        self,
        url: str,
        *,
        longest: timedelta = FETCH_TIMEOUT,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self._url = url
        self._timeout = longest
        self._max_bytes = most_bytes
        self.host = urlsplit(url).hostname or "the issuer"

    def __call__(self) -> bytes:
        """Return the complete response, or raise `NotFetched`."""
        with self._translate_errors(), timed_pools(num_pools=1) as pool:
            response = pool.request(
                "GET",
                self._url,
                headers=HEADERS,
                timeout=urllib3.Timeout(total=self._timeout.total_seconds()),
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                return self._read(response)
            finally:
                response.close()

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        if response.status != http.HTTPStatus.OK:
            raise NotFetched(f"returned {response.status} for its keys")
        body = b""
        for chunk in response.stream(CHUNK, decode_content=False):
            body += chunk
            if len(body) > self._max_bytes:
                raise NotFetched(f"sent more than {self._max_bytes} bytes of keys")
        return body

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate network errors into `NotFetched`."""
        try:
            yield
        except NameResolutionError as error:
            raise NotFetched("cannot be resolved") from error
        except NewConnectionError as error:
            raise NotFetched("cannot be reached") from error
        except (ConnectTimeoutError, ReadTimeoutError, TimeoutError) as error:
            seconds = self._timeout.total_seconds()
            raise NotFetched(f"sent no keys within {seconds:g} s") from error
        except SSLError as error:
            raise NotFetched("has no certificate that is trusted here") from error
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise NotFetched(
                "closed the connection or sent an invalid response"
            ) from error
