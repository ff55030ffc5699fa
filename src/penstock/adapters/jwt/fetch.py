"""Fetch what an issuer publishes: within one time and one size, from there only."""

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

from penstock.adapters.net.deadlines import CHUNK, timed_pools

LONGEST = timedelta(seconds=5)
MOST_BYTES = 1024 * 1024
HEADERS = {
    "Accept": "application/jwk-set+json, application/json",
    # what is not packed cannot unpack to more than it is
    "Accept-Encoding": "identity",
    "User-Agent": "penstock",
}


class NotFetched(Exception):
    """There is nothing to read; the text goes on behind the name of the host."""


class Fetch:
    """Asks one address; redirects are not followed, certificates are checked."""

    def __init__(
        self, url: str, *, longest: timedelta = LONGEST, most_bytes: int = MOST_BYTES
    ) -> None:
        self._url = url
        self._longest = longest
        self._most_bytes = most_bytes
        self.host = urlsplit(url).hostname or "the issuer"

    def __call__(self) -> bytes:
        """Return the whole answer, or raise `NotFetched`."""
        with self._translated(), timed_pools(num_pools=1) as pool:
            answer = pool.request(
                "GET",
                self._url,
                headers=HEADERS,
                timeout=urllib3.Timeout(total=self._longest.total_seconds()),
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                return self._read(answer)
            finally:
                answer.close()

    def _read(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        if answer.status != http.HTTPStatus.OK:
            raise NotFetched(f"answered {answer.status} when asked for its keys")
        body = b""
        for chunk in answer.stream(CHUNK, decode_content=False):
            body += chunk
            if len(body) > self._most_bytes:
                raise NotFetched(f"sent more than {self._most_bytes} bytes of keys")
        return body

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say what the network has done in our own words."""
        try:
            yield
        except NameResolutionError as error:
            raise NotFetched("cannot be resolved") from error
        except NewConnectionError as error:
            raise NotFetched("cannot be reached") from error
        except (ConnectTimeoutError, ReadTimeoutError, TimeoutError) as error:
            seconds = self._longest.total_seconds()
            raise NotFetched(f"sent no keys within {seconds:g} s") from error
        except SSLError as error:
            raise NotFetched("has no certificate that is trusted here") from error
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise NotFetched("broke off when asked for its keys") from error
