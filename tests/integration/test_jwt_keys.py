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

from penstock.adapters.jwt.fetch import Fetch, NotFetched
from penstock.adapters.jwt.keyring import PublishedKeyring
from penstock.domain.access import Algorithm, Heading
from penstock.errors import KeysUnavailable, StoreUnavailable
from tests.integration.issuer import (
    ANN,
    Clock,
    Desk,
    Issuer,
    claims,
    desk_of,
    ec_key,
    eventually,
    mac,
    public,
    rsa_key,
    signed,
    together,
)
from tests.integration.scripted_server import (
    Asked,
    Reply,
    ScriptedServer,
    json_reply,
    scripted_server,
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with scripted_server() as server:
        yield Issuer(server)


@pytest.fixture
def desk(issuer: Issuer) -> Desk:
    return desk_of(issuer)


def test_keys_are_fetched_when_the_first_token_comes(issuer, desk):
    assert issuer.fetches == 0
    assert desk.verifier.trouble() is None

    for number in range(5):
        assert desk.verifier.verify(signed(rsa_key("one"), jti=str(number))) == ANN

    assert issuer.fetches == 1
    asked = issuer.server.asked[0]
    assert asked.headers["Accept-Encoding"] == "identity"


def test_a_token_that_needs_no_key_causes_no_fetch(issuer, desk):
    desk.refusal("garbage")
    desk.refusal(mac({"alg": "HS256", "kid": "one"}, claims(), b"secret"))
    desk.refusal(signed(rsa_key("one"), header={"kid": "one", "crit": ["x"], "x": 1}))

    assert issuer.fetches == 0


def test_old_and_new_keys_are_good_while_both_are_listed(issuer, desk):
    old, new = rsa_key("one"), rsa_key("two")
    assert desk.verifier.verify(signed(old)) == ANN

    issuer.lists(old, new)

    assert desk.verifier.verify(signed(new)) == ANN
    assert desk.verifier.verify(signed(old, jti="again")) == ANN
    assert issuer.fetches == 2


def test_a_key_that_is_no_longer_listed_is_no_longer_good(issuer, desk):
    old, new = rsa_key("one"), rsa_key("two")
    cached, fresh = signed(old), signed(old, jti="fresh")
    assert desk.verifier.verify(cached) == ANN

    issuer.lists(new)
    assert desk.verifier.known(cached) == ANN
    assert desk.verifier.verify(signed(new)) == ANN

    # not even a token that was verified a moment ago outlives its key
    assert desk.verifier.known(cached) is None
    assert "not known" in desk.refusal(cached)
    assert "not known" in desk.refusal(fresh)


def test_another_key_under_the_same_name_ends_what_the_first_had_signed(issuer, desk):
    old, new = rsa_key("one"), ec_key("one")
    cached = signed(old)
    assert desk.verifier.verify(cached) == ANN

    issuer.lists(new)
    desk.refusal(signed(rsa_key("two")))

    assert issuer.fetches == 2
    assert desk.verifier.known(cached) is None
    assert desk.verifier.verify(signed(new, "ES256")) == ANN


def test_unknown_names_cause_one_fetch_in_a_while(issuer, desk):
    desk.verifier.verify(signed(rsa_key("one")))

    for number in range(20):
        forged = signed(rsa_key("evil"), header={"kid": f"made up {number}"})
        assert "not known" in desk.refusal(forged)
    assert issuer.fetches == 2

    desk.clock.passed = 29
    desk.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 2

    desk.clock.passed = 31
    for _ in range(5):
        desk.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 3


def test_an_unknown_name_at_the_very_start_causes_one_fetch_not_two(issuer, desk):
    assert "not known" in desk.refusal(signed(rsa_key("evil")))
    assert issuer.fetches == 1


def test_unknown_names_cause_one_fetch_also_while_the_issuer_is_down(issuer, desk):
    desk.verifier.verify(signed(rsa_key("one")))
    issuer.server.script(Reply(status=500))

    for _ in range(10):
        with pytest.raises(KeysUnavailable):
            desk.verifier.verify(signed(rsa_key("evil")))

    assert issuer.fetches == 2


def test_a_new_key_is_not_refused_because_the_issuer_cannot_list_it(issuer, desk):
    old, new = rsa_key("one"), rsa_key("two")
    desk.verifier.verify(signed(old))
    issuer.lists(old, new)
    issuer.server.script(Reply(status=500))

    desk.clock.passed = 100
    for judge in (desk.verifier.verify, desk.verifier.judge):
        with pytest.raises(KeysUnavailable, match="answered 500") as caught:
            judge(signed(new))
        assert timedelta(0) < caught.value.retry_after <= timedelta(seconds=30)
    # a key that is known neither waits, nor is it taken for one of another kind
    assert desk.verifier.judge(signed(old, jti="again")) == ANN
    assert "not known" in desk.refusal(signed(ec_key("one"), "ES256"))

    desk.clock.passed = 110
    with pytest.raises(KeysUnavailable) as caught:
        desk.verifier.judge(signed(new))
    assert timedelta(0) < caught.value.retry_after <= timedelta(seconds=20)
    assert issuer.fetches == 2

    issuer.server.answers = issuer.answer
    desk.clock.passed = 131
    assert desk.verifier.verify(signed(new)) == ANN
    assert "not known" in desk.refusal(signed(rsa_key("evil")))


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
    assert keyring.fitting(Heading(Algorithm.RS256, "one"))
    with pytest.raises(KeysUnavailable):
        keyring.fitting(Heading(Algorithm.RS256, "two"))
    hangs.set()
    clock.passed = 40

    def search() -> None:
        with pytest.raises(KeysUnavailable):
            keyring.fitting(Heading(Algorithm.RS256, "two"))

    searching = threading.Thread(target=search, daemon=True)
    searching.start()
    eventually(lambda: len(fetched) == 3)
    for number in range(20):
        with pytest.raises(KeysUnavailable):
            keyring.find_cached(Heading(Algorithm.RS256, f"made up {number}"))

    assert searching.is_alive()
    released.set()
    searching.join()
    assert len(fetched) == 3


def test_keys_are_renewed_every_ten_minutes_behind_everybodys_back(issuer, desk):
    cached = signed(rsa_key("one"), exp=time.time() + 7200)
    desk.verifier.verify(cached)
    desk.clock.passed = 599
    desk.verifier.verify(cached)
    assert issuer.fetches == 1

    released = threading.Event()
    issuer.lists(rsa_key("two"))

    def slowly(asked):
        released.wait(5)
        return issuer.answer(asked)

    issuer.server.answers = slowly
    desk.clock.passed = 660
    began = time.monotonic()
    for number in range(10):
        # the old key is good as long as nothing newer has come
        token = signed(rsa_key("one"), jti=str(number), exp=time.time() + 7200)
        assert desk.verifier.verify(token) == ANN
    assert time.monotonic() - began < 2
    released.set()

    eventually(lambda: desk.verifier.known(token) is None)
    assert issuer.fetches == 2
    two = signed(rsa_key("two"), exp=time.time() + 7200)
    assert desk.verifier.verify(two) == ANN
    assert issuer.fetches == 2


def test_keys_are_renewed_also_while_nobody_comes(issuer, desk):
    assert not desk.verifier.has_keys()
    desk.verifier.renew()
    assert desk.verifier.has_keys()
    token = signed(rsa_key("one"), exp=time.time() + 10**6)
    assert desk.verifier.judge(token) == ANN

    issuer.lists(rsa_key("two"))
    for _ in range(3):
        desk.verifier.renew()
    assert issuer.fetches == 1
    desk.clock.passed = 3600 * 5
    desk.verifier.renew()

    eventually(lambda: desk.verifier.judge(token) is None)
    assert "not known" in desk.refusal(token)


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
def test_good_keys_outlive_a_failed_fetch(issuer, desk, case):
    token = signed(rsa_key("one"), exp=time.time() + 10**6)
    desk.verifier.verify(token)
    issuer.server.script(OUTAGES[case])

    for hour in (1, 12, 23):
        desk.clock.passed = 3600.0 * hour
        assert desk.verifier.verify(token) == ANN
        eventually(lambda: desk.verifier.trouble() is not None)
        assert desk.verifier.known(token) == ANN
    assert "old, and are good for a day" in str(desk.verifier.trouble())

    desk.clock.passed = 3600.0 * 24 + 60
    with pytest.raises(KeysUnavailable):
        desk.verifier.verify(signed(rsa_key("one"), jti="x", exp=time.time() + 10**6))
    assert desk.verifier.known(token) is None


def test_keys_that_come_back_end_the_trouble(issuer, desk):
    desk.verifier.verify(signed(rsa_key("one")))
    issuer.server.script(Reply(status=503))
    desk.clock.passed = 700
    late: dict[str, Any] = {"exp": time.time() + 10**6}
    desk.verifier.verify(signed(rsa_key("one"), jti="a", **late))
    eventually(lambda: desk.verifier.trouble() is not None)
    assert "answered 503" in str(desk.verifier.trouble())

    issuer.server.answers = issuer.answer
    desk.clock.passed = 720
    desk.verifier.verify(signed(rsa_key("one"), jti="b", **late))
    assert desk.verifier.trouble() is not None
    desk.clock.passed = 731
    desk.verifier.verify(signed(rsa_key("one"), jti="c", **late))

    eventually(lambda: desk.verifier.trouble() is None)
    assert issuer.fetches == 3


def test_without_any_keys_nothing_is_judged_and_the_issuer_is_left_in_peace(
    issuer, desk
):
    issuer.server.script(Reply(status=500))
    token = signed(rsa_key("one"))

    for _ in range(10):
        with pytest.raises(KeysUnavailable):
            desk.verifier.verify(token)
    with pytest.raises(KeysUnavailable) as caught:
        desk.verifier.verify(token)
    assert issuer.fetches == 1
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.retry_after == timedelta(seconds=5)
    assert "'127.0.0.1' answered 500" in str(caught.value)
    assert "no token can be verified" in str(desk.verifier.trouble())

    issuer.server.answers = issuer.answer
    desk.clock.passed = 6
    assert desk.verifier.verify(token) == ANN
    assert desk.verifier.trouble() is None


def test_a_slow_failure_is_one_for_all_who_wait():
    clock, tries = Clock(), []

    def fetch() -> bytes:
        tries.append(clock.monotonic())
        clock.passed += 6
        raise NotFetched("sent no keys within 5 s")

    keyring = PublishedKeyring(fetch, host="id.example.org", clock=clock.monotonic)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            keyring.fitting(Heading(Algorithm.RS256, "one"))

    assert len(tries) == 1


def test_a_server_that_is_gone_is_no_traceback():
    with scripted_server() as server:
        issuer = Issuer(server)
        desk = desk_of(issuer)
    with pytest.raises(KeysUnavailable, match="cannot be reached"):
        desk.verifier.verify(signed(rsa_key("one")))


def test_redirects_are_not_followed(issuer, desk):
    issuer.server.script(
        Reply(status=302, headers={"Location": f"{issuer.server.url}/trap"})
    )

    with pytest.raises(KeysUnavailable, match="answered 302"):
        desk.verifier.verify(signed(rsa_key("evil")))
    assert [each.path for each in issuer.server.asked] == ["/jwks"]


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

    assert time.monotonic() - began < 3


def test_silence_ends_in_time(issuer):
    issuer.server.script(lambda _: issuer.server.pause(20))

    with pytest.raises(NotFetched, match=r"within 0\.2 s"):
        Fetch(issuer.url, longest=timedelta(seconds=0.2))()


def test_an_answer_that_is_cut_off_is_no_set_of_keys(issuer):
    def cut(handler: Any) -> None:
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"keys": [')

    issuer.server.script(cut)

    with pytest.raises(NotFetched, match="broke off"):
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
    def answer(asked: Asked) -> Reply:
        issuer.server.pause(seconds)
        return issuer.answer(asked)

    issuer.server.answers = answer


def test_the_first_tokens_of_many_threads_cause_one_fetch(issuer, desk):
    slow(issuer, 0.2)
    tokens = [signed(rsa_key("one"), jti=str(number)) for number in range(24)]

    got = together(24, lambda index: desk.verifier.verify(tokens[index]))

    assert got == [ANN] * 24
    assert issuer.fetches == 1


def test_a_new_key_of_many_threads_causes_one_fetch(issuer, desk):
    desk.verifier.verify(signed(rsa_key("one")))
    issuer.lists(rsa_key("one"), rsa_key("two"))
    slow(issuer, 0.2)
    tokens = [signed(rsa_key("two"), jti=str(number)) for number in range(24)]

    got = together(24, lambda index: desk.verifier.verify(tokens[index]))

    assert got == [ANN] * 24
    assert issuer.fetches == 2


def test_a_failed_first_fetch_is_one_for_all_who_wait(issuer, desk):
    def failing(_: Asked) -> Reply:
        issuer.server.pause(0.2)
        return Reply(status=500)

    issuer.server.answers = failing
    token = signed(rsa_key("one"))

    got = together(24, lambda _: desk.verifier.verify(token))

    assert got == [KeysUnavailable] * 24
    assert issuer.fetches == 1


def test_no_token_of_a_known_key_waits_for_a_fetch_of_any_kind():
    clock, hangs, released = Clock(), threading.Event(), threading.Event()
    keys = json.dumps({"keys": [public(rsa_key("one"))]}).encode()

    def fetch() -> bytes:
        if hangs.is_set():
            assert released.wait(60)
        return keys

    keyring = PublishedKeyring(fetch, host="id.example.org", clock=clock.monotonic)
    known, unknown = Heading(Algorithm.RS256, "one"), Heading(Algorithm.RS256, "two")
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


def test_nobody_with_a_known_key_waits_for_the_search_of_an_unknown_one(issuer, desk):
    desk.verifier.verify(signed(rsa_key("one")))
    slow(issuer, 3)
    searching = threading.Thread(
        target=lambda: desk.refusal(signed(rsa_key("evil"))), daemon=True
    )
    searching.start()
    eventually(lambda: issuer.fetches == 2)
    began = time.monotonic()

    assert desk.verifier.verify(signed(rsa_key("one"), jti="other")) == ANN

    assert time.monotonic() - began < 1.5
    issuer.server.stopping.set()
    searching.join()
