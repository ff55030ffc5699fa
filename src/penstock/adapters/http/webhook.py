"""Deliver messages to a URL, signed as Standard Webhooks describes.

https://github.com/standard-webhooks/standard-webhooks: receivers verify the signature
with a library, refuse old timestamps, and recognise a repeated message by its id.
"""

import base64
import hashlib
import hmac
import http.client
import json
import time
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import urllib3
from typing_extensions import override
from urllib3.exceptions import HTTPError, SSLError

from penstock.adapters.net.http_deadlines import TimedPool, TimedSecurePool
from penstock.adapters.net.public_addresses import PrivateAddress, resolve
from penstock.domain.hooks import Webhook
from penstock.ports.hooks import DeliveryFailed, HookTarget

# of a delivery, from the connection to the last byte of the response's head
DELIVERY_TIMEOUT = timedelta(seconds=10)
HTTPS_PORT, HTTP_PORT = 443, 80


class WebhookTarget(HookTarget):
    """Sends each message on a connection of its own; redirects are not followed."""

    def __init__(
        self,
        name: str,
        webhook: Webhook,
        *,
        timeout: timedelta = DELIVERY_TIMEOUT,
    ) -> None:
        self._name = name
        self._webhook = webhook
        self._timeout = timeout
        split = urlsplit(webhook.url)
        self._is_secure = split.scheme == "https"
        self._host = split.hostname or ""
        self._port = split.port or (HTTPS_PORT if self._is_secure else HTTP_PORT)
        self._host_header = split.netloc
        self._path = (split.path or "/") + (f"?{split.query}" if split.query else "")

    @override
    def deliver(self, document: Mapping[str, Any]) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = {
            "Host": self._host_header,
            "Content-Type": "application/json",
            "User-Agent": "penstock",
            **signature_headers(
                self._webhook.secret,
                message_id=document["id"],
                timestamp=int(time.time()),
                body=body,
            ),
        }
        try:
            status = self._post(body, headers)
        except PrivateAddress as error:
            remedy = f"set hooks.{self._name}.allow_private = true to allow it"
            raise DeliveryFailed(f"{error}; {remedy}") from error
        except SSLError as error:
            raise DeliveryFailed(
                f"{self._host} has no certificate that is trusted here"
            ) from error
        except (HTTPError, http.client.HTTPException, OSError) as error:
            # not its text, which contains the URL
            raise DeliveryFailed(
                f"{self._host} did not respond: {type(error).__name__}"
            ) from error
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise DeliveryFailed(
                f"{self._host} returned {status}, and redirects are not followed"
            )
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise DeliveryFailed(f"{self._host} returned {status}")

    def _post(self, body: bytes, headers: Mapping[str, str]) -> int:
        address = resolve(self._host, allow_private=self._webhook.allow_private)
        with self._open_pool(address) as pool:
            response = pool.request(
                "POST",
                self._path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=self._timeout.total_seconds()),
                redirect=False,
                retries=False,
                preload_content=False,
            )
            # its body is of no interest
            response.close()
            return response.status

    def _open_pool(self, address: str) -> urllib3.HTTPConnectionPool:
        if not self._is_secure:
            return TimedPool(address, self._port)
        return TimedSecurePool(
            address,
            self._port,
            server_hostname=self._host,
            assert_hostname=self._host,
        )


def signature_headers(
    secret: bytes, *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
