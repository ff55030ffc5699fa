"""Keys that an issuer publishes, changes, takes back, or cannot show just now."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.adapters.jwt.jwks_cache import PublishedKeyring
from penstock.adapters.jwt.jwks_fetch import Fetch, NotFetched
from penstock.domain.auth_claims import Algorithm, TokenHeader
from penstock.errors import JwksUnavailable, StoreUnavailable
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    ScriptedServer,
    json_reply,
    scripted_server,
)
from tests.support.token_issuer import (
    ANN,
    AuthSetup,
    Clock,
    Issuer,
    auth_setup,
    claims,
    ec_key,
    eventually,
    mac,
    public,
    rsa_key,
    signed,
    together,
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with scripted_server() as server:
        yield Issuer(server)


@pytest.fixture
def auth(issuer: Issuer) -> AuthSetup:
    return auth_setup(issuer)


def test_keys_are_fetched_when_the_first_token_comes(issuer, auth):
    assert issuer.fetches == 0
    assert auth.verifier.failure() is None

    for number in range(5):
        assert auth.verifier.verify(signed(rsa_key("one"), jti=str(number))) == ANN

    assert issuer.fetches == 1
    request = issuer.server.requests[0]
    assert request.headers["Accept-Encoding"] == "identity"


def test_a_token_that_needs_no_key_causes_no_fetch(issuer, auth):
    auth.refusal("garbage")
    auth.refusal(mac({"alg": "HS256", "kid": "one"}, claims(), b"secret"))
    auth.refusal(signed(rsa_key("one"), header={"kid": "one", "crit": ["x"], "x": 1}))

    assert issuer.fetches == 0


def test_old_and_new_keys_are_good_while_both_are_listed(issuer, auth):
    old, new = rsa_key("one"), rsa_key("two")
    assert auth.verifier.verify(signed(old)) == ANN

    issuer.lists(old, new)

    assert auth.verifier.verify(signed(new)) == ANN
    assert auth.verifier.verify(signed(old, jti="again")) == ANN
    assert issuer.fetches == 2


def test_a_key_that_is_no_longer_listed_is_no_longer_good(issuer, auth):
    old, new = rsa_key("one"), rsa_key("two")
    cached, fresh = signed(old), signed(old, jti="fresh")
    assert auth.verifier.verify(cached) == ANN

    issuer.lists(new)
    assert auth.verifier.cached(cached) == ANN
    assert auth.verifier.verify(signed(new)) == ANN

    # not even a token that was verified a moment ago outlives its key
    assert auth.verifier.cached(cached) is None
    assert "not known" in auth.refusal(cached)
    assert "not known" in auth.refusal(fresh)


def test_another_key_under_the_same_name_ends_what_the_first_had_signed(issuer, auth):
    old, new = rsa_key("one"), ec_key("one")
    cached = signed(old)
    assert auth.verifier.verify(cached) == ANN

    issuer.lists(new)
    auth.refusal(signed(rsa_key("two")))

    assert issuer.fetches == 2
    assert auth.verifier.cached(cached) is None
    assert auth.verifier.verify(signed(new, "ES256")) == ANN


def test_unknown_names_cause_one_fetch_in_a_while(issuer, auth):
    auth.verifier.verify(signed(rsa_key("one")))

    for number in range(20):
        forged = signed(rsa_key("evil"), header={"kid": f"made up {number}"})
        assert "not known" in auth.refusal(forged)
    assert issuer.fetches == 2

    auth.clock.passed = 29
    auth.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 2

    auth.clock.passed = 31
    for _ in range(5):
        auth.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 3


def test_an_unknown_name_at_the_very_start_causes_one_fetch_not_two(issuer, auth):
    assert "not known" in auth.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 1


def test_unknown_names_cause_one_fetch_also_while_the_issuer_is_down(issuer, auth):
    auth.verifier.verify(signed(rsa_key("one")))
    issuer.server.script(Reply(status=500))

    for _ in range(10):
        with pytest.raises(JwksUnavailable):
            auth.verifier.verify(signed(rsa_key("evil")))

    assert issuer.fetches == 2


def test_a_new_key_is_not_refused_because_the_issuer_cannot_list_it(issuer, auth):
    old, new = rsa_key("one"), rsa_key("two")
    auth.verifier.verify(signed(old))
    issuer.lists(old, new)
    issuer.server.script(Reply(status=500))

    auth.clock.passed = 100
    for judge in (auth.verifier.verify, auth.verifier.verify_locally):
        with pytest.raises(JwksUnavailable, match="returned 500") as caught:
            judge(signed(new))
        assert timedelta(0) < caught.value.retry_after <= timedelta(seconds=30)
    # a key that is known neither waits, nor is it taken for one of another kind
    assert auth.verifier.verify_locally(signed(old, jti="again")) == ANN
    assert "not known" in auth.refusal(signed(ec_key("one"), "ES256"))

    auth.clock.passed = 110
    with pytest.raises(JwksUnavailable) as caught:
        auth.verifier.verify_locally(signed(new))
    assert timedelta(0) < caught.value.retry_after <= timedelta(seconds=20)
    assert issuer.fetches == 2

    issuer.server.answers = issuer.answer
    auth.clock.passed = 131
    assert auth.verifier.verify(signed(new)) == ANN
    assert "not known" in auth.refusal(signed(rsa_key("evil")))


def test_nobody_waits_for_an_issuer_that_has_failed_before():
    clock, hangs, released = Clock(), threading.Event(), threading.Event()
    keys = json.dumps({"keys": [public(rsa_key("one"))]}).encode()
    fetched: list[float] = []

    def fetch() -> bytes:
        fetched.append(clock.passed)
        if hangs.is_set():
            assert released.wait(60)
        if len(fetched) > 1:
            raise NotFetched("does not answer")
        return keys

    keyring = PublishedKeyring(fetch, host="id.example.org", clock=clock.monotonic)
    assert keyring.fitting(TokenHeader(Algorithm.RS256, "one"))
    with pytest.raises(JwksUnavailable):
        keyring.fitting(TokenHeader(Algorithm.RS256, "two"))
    hangs.set()
    clock.passed = 40

    def search() -> None:
        with pytest.raises(JwksUnavailable):
            keyring.fitting(TokenHeader(Algorithm.RS256, "two"))

    searching = threading.Thread(target=search, daemon=True)
    searching.start()
    eventually(lambda: len(fetched) == 3)
    for number in range(20):
        with pytest.raises(JwksUnavailable):
            keyring.find_cached(TokenHeader(Algorithm.RS256, f"made up {number}"))

    assert searching.is_alive()
    released.set()
    searching.join()
    assert len(fetched) == 3


def test_keys_are_renewed_every_ten_minutes_behind_everybodys_back(issuer, auth):
    cached = signed(rsa_key("one"), exp=time.time() + 7200)
    auth.verifier.verify(cached)
    auth.clock.passed = 599
    auth.verifier.verify(cached)
    assert issuer.fetches == 1

    released = threading.Event()
    issuer.lists(rsa_key("two"))

    def slowly(request):
        released.wait(30)
        return issuer.answer(request)

    issuer.server.answers = slowly
    auth.clock.passed = 660
    began = time.monotonic()
    for number in range(10):
        # the old key is good as long as nothing newer has come
        token = signed(rsa_key("one"), jti=str(number), exp=time.time() + 7200)
        assert auth.verifier.verify(token) == ANN
    assert time.monotonic() - began < 20
    released.set()

    eventually(lambda: auth.verifier.cached(token) is None)
    assert issuer.fetches == 2
    two = signed(rsa_key("two"), exp=time.time() + 7200)
    assert auth.verifier.verify(two) == ANN
    assert issuer.fetches == 2


def test_keys_are_renewed_also_while_nobody_comes(issuer, auth):
    assert not auth.verifier.has_keys()
    auth.verifier.renew()
    assert auth.verifier.has_keys()
    token = signed(rsa_key("one"), exp=time.time() + 10**6)
    assert auth.verifier.verify_locally(token) == ANN

    issuer.lists(rsa_key("two"))
    for _ in range(3):
        auth.verifier.renew()
    assert issuer.fetches == 1
    auth.clock.passed = 3600 * 5
    auth.verifier.renew()

    eventually(lambda: auth.verifier.verify_locally(token) is None)
    assert "not known" in auth.refusal(token)


OUTAGES = {
    "500": Reply(status=500),
    "404": Reply(status=404, body=b"{}"),
    "no JSON": Reply(body=b"<html>"),
    "a list": Reply(body=b"[]"),
    "no keys": Reply(body=b"{}"),
    "an empty set": Reply(body=b'{"keys": []}'),
    "keys of no kind": Reply(body=b'{"keys": 5}'),
    "ambiguous": Reply(body=b'{"keys": [], "keys": []}'),
    "packed": Reply(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
    "deep": Reply(body=b"[" * 100_000),
}


@pytest.mark.parametrize("case", OUTAGES)
def test_good_keys_outlive_a_failed_fetch(issuer, auth, case):
    token = signed(rsa_key("one"), exp=time.time() + 10**6)
    auth.verifier.verify(token)
    issuer.server.script(OUTAGES[case])

    for hour in (1, 12, 23):
        auth.clock.passed = 3600.0 * hour
        assert auth.verifier.verify(token) == ANN
        eventually(lambda: auth.verifier.failure() is not None)
        assert auth.verifier.cached(token) == ANN
    assert "old, and are valid for a day" in str(auth.verifier.failure())

    auth.clock.passed = 3600.0 * 24 + 60
    with pytest.raises(JwksUnavailable):
        auth.verifier.verify(signed(rsa_key("one"), jti="x", exp=time.time() + 10**6))
    assert auth.verifier.cached(token) is None


def test_keys_that_come_back_end_the_failure(issuer, auth):
    auth.verifier.verify(signed(rsa_key("one")))
    issuer.server.script(Reply(status=503))
    auth.clock.passed = 700
    late: dict[str, Any] = {"exp": time.time() + 10**6}
    auth.verifier.verify(signed(rsa_key("one"), jti="a", **late))
    eventually(lambda: auth.verifier.failure() is not None)
    assert "returned 503" in str(auth.verifier.failure())

    issuer.server.answers = issuer.answer
    auth.clock.passed = 720
    auth.verifier.verify(signed(rsa_key("one"), jti="b", **late))
    assert auth.verifier.failure() is not None
    auth.clock.passed = 731
    auth.verifier.verify(signed(rsa_key("one"), jti="c", **late))

    eventually(lambda: auth.verifier.failure() is None)
    assert issuer.fetches == 3


def test_without_any_keys_nothing_is_judged_and_the_issuer_is_left_in_peace(
    issuer, auth
):
    issuer.server.script(Reply(status=500))
    token = signed(rsa_key("one"))

    for _ in range(10):
        with pytest.raises(JwksUnavailable):
            auth.verifier.verify(token)
    with pytest.raises(JwksUnavailable) as caught:
        auth.verifier.verify(token)
    assert issuer.fetches == 1
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.retry_after == timedelta(seconds=5)
    assert "'127.0.0.1' returned 500" in str(caught.value)
    assert "no token can be verified" in str(auth.verifier.failure())

    issuer.server.answers = issuer.answer
    auth.clock.passed = 6
    assert auth.verifier.verify(token) == ANN
    assert auth.verifier.failure() is None


def test_a_slow_failure_is_one_for_all_who_wait():
    clock, tries = Clock(), []

    def fetch() -> bytes:
        tries.append(clock.monotonic())
        clock.passed += 6
        raise NotFetched("sent no keys within 5 s")

    keyring = PublishedKeyring(fetch, host="id.example.org", clock=clock.monotonic)
    for _ in range(3):
        with pytest.raises(JwksUnavailable):
            keyring.fitting(TokenHeader(Algorithm.RS256, "one"))

    assert len(tries) == 1


def test_a_server_that_is_gone_is_no_traceback():
    with scripted_server() as server:
        issuer = Issuer(server)
        auth = auth_setup(issuer)
    with pytest.raises(JwksUnavailable, match="cannot be reached"):
        auth.verifier.verify(signed(rsa_key("one")))


def test_redirects_are_not_followed(issuer, auth):
    issuer.server.script(
        Reply(status=302, headers={"Location": f"{issuer.server.url}/trap"})
    )

    with pytest.raises(JwksUnavailable, match="returned 302"):
        auth.verifier.verify(signed(rsa_key("evil")))
    assert [each.path for each in issuer.server.requests] == ["/jwks"]


def test_a_set_that_is_too_large_is_not_read(issuer):
    body = json.dumps({"keys": [public(rsa_key("one"))], "pad": "x" * 2**20}).encode()
    issuer.server.script(Reply(body=body))

    with pytest.raises(NotFetched, match="more than 1048576 bytes"):
        Fetch(issuer.url)()


@pytest.mark.parametrize("where", ["head", "body"])
def test_a_trickle_ends_in_time(issuer, where):
    def trickle(handler: Any) -> None:
        start = b"HTTP/1.1 200 OK\r\n"
        if where == "body":
            start += b"Content-Length: 100000\r\n\r\n"
        handler.wfile.write(start)
        for _ in range(200):
            handler.wfile.write(b"X")
            handler.wfile.flush()
            issuer.server.pause(0.05)

    issuer.server.script(trickle)
    began = time.monotonic()

    with pytest.raises(NotFetched, match=r"sent no keys within 0\.4 s"):
        Fetch(issuer.url, longest=timedelta(seconds=0.4))()

    assert time.monotonic() - began < 8


def test_silence_ends_in_time(issuer):
    issuer.server.script(lambda _: issuer.server.pause(20))

    with pytest.raises(NotFetched, match=r"within 0\.2 s"):
        Fetch(issuer.url, longest=timedelta(seconds=0.2))()


def test_an_answer_that_is_cut_off_is_no_set_of_keys(issuer):
    def cut(handler: Any) -> None:
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"keys": [')

    issuer.server.script(cut)

    with pytest.raises(NotFetched, match="closed the connection"):
        Fetch(issuer.url)()


def certificate(folder: Path) -> Path:
    """Write a certificate for loopback that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@contextmanager
def secure_issuer(path: Path) -> Iterator[str]:
    server = ScriptedServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.script(json_reply({"keys": [public(rsa_key("one"))]}))
    thread = threading.Thread(
        target=server.http.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.http.server_port}/jwks"
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path, monkeypatch):
    path = certificate(tmp_path)
    with secure_issuer(path) as url:
        with pytest.raises(NotFetched, match="no certificate that is trusted"):
            Fetch(url)()

        # whoever runs an issuer of their own says so in the usual way
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        assert b'"keys"' in Fetch(url)()
        with pytest.raises(NotFetched, match="no certificate that is trusted"):
            Fetch(url.replace("127.0.0.1", "localhost"))()


# many at once


def slow(issuer: Issuer, seconds: float) -> None:
    def answer(request: ReceivedRequest) -> Reply:
        issuer.server.pause(seconds)
        return issuer.answer(request)

    issuer.server.answers = answer


def test_the_first_tokens_of_many_threads_cause_one_fetch(issuer, auth):
    slow(issuer, 0.2)
    tokens = [signed(rsa_key("one"), jti=str(number)) for number in range(24)]

    got = together(24, lambda index: auth.verifier.verify(tokens[index]))

    assert got == [ANN] * 24
    assert issuer.fetches == 1


def test_a_new_key_of_many_threads_causes_one_fetch(issuer, auth):
    auth.verifier.verify(signed(rsa_key("one")))
    issuer.lists(rsa_key("one"), rsa_key("two"))
    slow(issuer, 0.2)
    tokens = [signed(rsa_key("two"), jti=str(number)) for number in range(24)]

    got = together(24, lambda index: auth.verifier.verify(tokens[index]))

    assert got == [ANN] * 24
    assert issuer.fetches == 2


def test_a_failed_first_fetch_is_one_for_all_who_wait(issuer, auth):
    def failing(_: ReceivedRequest) -> Reply:
        issuer.server.pause(0.2)
        return Reply(status=500)

    issuer.server.answers = failing
    token = signed(rsa_key("one"))

    got = together(24, lambda _: auth.verifier.verify(token))

    assert got == [JwksUnavailable] * 24
    assert issuer.fetches == 1


def test_no_token_of_a_known_key_waits_for_a_fetch_of_any_kind():
    clock, hangs, released = Clock(), threading.Event(), threading.Event()
    keys = json.dumps({"keys": [public(rsa_key("one"))]}).encode()

    def fetch() -> bytes:
        if hangs.is_set():
            assert released.wait(60)
        return keys

    keyring = PublishedKeyring(fetch, host="id.example.org", clock=clock.monotonic)
    known, unknown = (
        TokenHeader(Algorithm.RS256, "one"),
        TokenHeader(Algorithm.RS256, "two"),
    )
    assert keyring.find_cached(known) is None
    assert keyring.fitting(known)
    hangs.set()
    searching = threading.Thread(target=keyring.fitting, args=[unknown], daemon=True)
    searching.start()
    eventually(lambda: keyring.find_cached(unknown) is None)
    # after ten minutes, and after a night in which nobody came
    for passed in (0, 700, 80_000):
        clock.passed = passed
        assert keyring.find_cached(known)
        assert keyring.fitting(known)
    assert searching.is_alive()
    released.set()
    searching.join()
    clock.passed = 0

    # who was refused a moment ago is refused without another look
    assert keyring.find_cached(unknown) == []


def test_nobody_with_a_known_key_waits_for_the_search_of_an_unknown_one(issuer, auth):
    auth.verifier.verify(signed(rsa_key("one")))
    slow(issuer, 30)
    searching = threading.Thread(
        target=lambda: auth.refusal(signed(rsa_key("evil"))), daemon=True
    )
    searching.start()
    eventually(lambda: issuer.fetches == 2)
    began = time.monotonic()

    assert auth.verifier.verify(signed(rsa_key("one"), jti="other")) == ANN

    assert time.monotonic() - began < 20
    issuer.server.stopping.set()
    searching.join()
