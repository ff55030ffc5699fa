"""Tokens that are believed, and the attacks that are not."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import Key, OctKey
from typing_extensions import override

from penstock.adapters.jwt.jwk import VerifyingKey, public_keys, shared_key
from penstock.adapters.jwt.jwks_cache import SecretKeyring
from penstock.adapters.jwt.signer import JwtSigner
from penstock.adapters.jwt.verifier import JwtVerifier, TokenCache
from penstock.domain.auth_claims import (
    AccessScope,
    Algorithm,
    SharedSecret,
    TokenHeader,
)
from tests.support.scripted_server import scripted_server
from tests.support.token_issuer import (
    ANN,
    ASYMMETRIC,
    SECRET,
    AuthSetup,
    Issuer,
    auth_setup,
    b64,
    claims,
    ec_key,
    edwards_key,
    encoded,
    mac,
    public,
    rsa_key,
    secret_auth_setup,
    secret_trust,
    signed,
    together,
    written,
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with scripted_server() as server:
        yield Issuer(server)


@pytest.fixture
def auth(issuer: Issuer) -> AuthSetup:
    return auth_setup(issuer)


# what is believed


GENUINE: dict[str, Callable[[], Key]] = {
    "RS256": lambda: rsa_key("one"),
    "RS384": lambda: rsa_key("one"),
    "RS512": lambda: rsa_key("one"),
    "PS256": lambda: rsa_key("one"),
    "PS384": lambda: rsa_key("one"),
    "PS512": lambda: rsa_key("one"),
    "ES256": lambda: ec_key("p256"),
    "ES384": lambda: ec_key("p384", "P-384"),
    "ES512": lambda: ec_key("p521", "P-521"),
    "Ed25519": lambda: edwards_key("ed"),
    "EdDSA": lambda: edwards_key("ed"),
}


@pytest.mark.parametrize("algorithm", GENUINE)
def test_a_token_of_every_allowed_algorithm_is_believed(issuer, auth, algorithm):
    issuer.lists(rsa_key("one"), *(make() for make in [*GENUINE.values()][6:]))

    token = signed(GENUINE[algorithm](), algorithm)

    assert auth.verifier.verify(token) == ANN
    assert issuer.fetches == 1


def test_every_asymmetric_algorithm_was_tried():
    assert {*GENUINE} == {each.value for each in ASYMMETRIC}


def test_a_large_key_and_a_long_header_are_no_reason_to_refuse(issuer, auth):
    large = rsa_key("large", 4096)
    issuer.lists(large)
    header = {"kid": "large", "x5c": ["c" * 1500], "pi.atm": "1", "typ": "at+jwt"}

    assert auth.verifier.verify(signed(large, header=header)) == ANN


def test_a_token_without_a_name_for_its_key_is_tried_with_those_that_fit(issuer, auth):
    issuer.lists(rsa_key("one"), ec_key("p256"), rsa_key("two"))

    assert auth.verifier.verify(signed(rsa_key("two"), header={})) == ANN
    assert "signature" in auth.refusal(signed(rsa_key("evil"), header={}))
    assert issuer.fetches == 1


def test_keys_without_names_are_used_too(issuer, auth):
    issuer.listed = [public(rsa_key("one"), kid=None), public(ec_key("p"), kid=None)]

    assert auth.verifier.verify(signed(ec_key("p"), "ES256", header={})) == ANN
    # a token that names its key means one of that name
    assert "not known" in auth.refusal(signed(rsa_key("one")))


def test_the_older_name_of_an_algorithm_means_the_same_key(issuer, auth):
    issuer.listed = [public(edwards_key("ed"), alg="EdDSA")]

    for name in ("EdDSA", "Ed25519"):
        assert auth.verifier.verify(signed(edwards_key("ed"), name)) == ANN


def test_a_shared_secret_signs_too():
    auth = secret_auth_setup()
    signer = JwtSigner(secret_trust(), SharedSecret(SECRET))

    made = signer.sign("ann", [AccessScope.WRITE], lifetime=timedelta(minutes=5))

    assert auth.verifier.verify(made.token) == ANN
    assert SECRET not in made.token
    assert auth.verifier.failure() is None
    header = {"kid": "any", "typ": "JWT"}
    named = signed(shared_key(SECRET).key, "HS256", header=header)
    assert auth.verifier.verify(named) == ANN


# what is not


def as_pem(key: Key) -> bytes:
    return key.as_pem(private=False)  # type: ignore[union-attr]


def with_public_key_as_secret(secret: bytes) -> str:
    return mac({"alg": "HS256", "kid": "one"}, claims(), secret)


def resigned(header: dict[str, Any]) -> str:
    """Sign with a key of the forger's own that the header offers."""
    return signed(rsa_key("evil"), header={"kid": "evil", **header})


def twice(text: str, name: str, value: str) -> str:
    return text.replace("{", f'{{"{name}": {value}, ', 1)


ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    "none": (
        lambda: f"{encoded({'alg': 'none'})}.{encoded(claims())}.",
        "not a signed JWT",
    ),
    "none with a signature": (
        lambda: f"{encoded({'alg': 'none'})}.{encoded(claims())}.AAAA",
        "algorithm",
    ),
    "nOnE": (
        lambda: f"{encoded({'alg': 'nOnE', 'kid': 'one'})}.{encoded(claims())}.AAAA",
        "algorithm",
    ),
    "signature cut off": (
        lambda: signed(rsa_key("one")).rpartition(".")[0] + ".",
        "not a signed JWT",
    ),
    "public key as secret": (
        lambda: with_public_key_as_secret(as_pem(rsa_key("one"))),
        "algorithm",
    ),
    "public key without its last line break as secret": (
        lambda: with_public_key_as_secret(as_pem(rsa_key("one")).strip()),
        "algorithm",
    ),
    "public numbers as secret": (
        lambda: with_public_key_as_secret(json.dumps(public(rsa_key("one"))).encode()),
        "algorithm",
    ),
    "key of the forger under our name": (
        lambda: signed(rsa_key("evil"), header={"kid": "one"}),
        "signature",
    ),
    "other audience": (lambda: signed(rsa_key("one"), aud="other"), "audience"),
    "audiences of others": (lambda: signed(rsa_key("one"), aud=["a", "b"]), "audience"),
    "no audience": (lambda: signed(rsa_key("one"), aud=None), "aud"),
    "other issuer": (lambda: signed(rsa_key("one"), iss="https://evil/"), "issuer"),
    "expired": (lambda: signed(rsa_key("one"), exp=time.time() - 31), "expired"),
    "no end": (lambda: signed(rsa_key("one"), exp=None), "when it expires"),
    "not yet valid": (lambda: signed(rsa_key("one"), nbf=time.time() + 60), "yet"),
    "from the future": (lambda: signed(rsa_key("one"), iat=time.time() + 60), "future"),
    "no subject": (lambda: signed(rsa_key("one"), sub=None), "whose"),
    "unknown crit": (
        lambda: signed(rsa_key("one"), header={"kid": "one", "crit": ["x"], "x": "y"}),
        "crit",
    ),
    "crit of an unencoded payload": (
        lambda: signed(
            rsa_key("one"), header={"kid": "one", "crit": ["b64"], "b64": False}
        ),
        "crit",
    ),
    "unencoded payload without crit": (
        lambda: signed(rsa_key("one"), header={"kid": "one", "b64": False}),
        "signature",
    ),
    "embedded jwk": (lambda: resigned({"jwk": public(rsa_key("evil"))}), "not known"),
    "embedded jwk under our name": (
        lambda: resigned({"kid": "one", "jwk": public(rsa_key("evil"))}),
        "signature",
    ),
    "embedded jwk without a name": (
        lambda: signed(rsa_key("evil"), header={"jwk": public(rsa_key("evil"))}),
        "signature",
    ),
    "name that climbs": (
        lambda: signed(rsa_key("one"), header={"kid": "../../../../dev/null"}),
        "not known",
    ),
    "name that asks a database": (
        lambda: signed(rsa_key("one"), header={"kid": "x' union select 'a'--"}),
        "not known",
    ),
    "name that is an address": (
        lambda: signed(rsa_key("one"), header={"kid": "http://127.0.0.1/evil"}),
        "not known",
    ),
    "empty name": (lambda: signed(rsa_key("one"), header={"kid": ""}), "not known"),
    "name that is a number": (
        lambda: signed(rsa_key("one"), header={"kid": 1}),
        "not text",
    ),
    "name that is a list": (
        lambda: signed(rsa_key("one"), header={"kid": ["one"]}),
        "not text",
    ),
    "identity token of another kind": (
        lambda: signed(rsa_key("one"), header={"kid": "one", "typ": "logout+jwt"}),
        "typ",
    ),
    "huge": (lambda: signed(rsa_key("one"), pad="x" * 8192), "longer than 8192"),
    "garbage": (lambda: "garbage", "not a signed JWT"),
    "nothing": (lambda: "", "not a signed JWT"),
    "dots": (lambda: "..", "not a signed JWT"),
    "five parts": (lambda: "a.b.c.d.e", "not a signed JWT"),
    "another script": (lambda: "ключ.ключ.ключ", "not a signed JWT"),
    "half a character": (lambda: "\ud800.a.b", "not a signed JWT"),
    "padding": (
        lambda: signed(rsa_key("one")).replace(".", "=.", 1),
        "signature",
    ),
    "header that is a list": (
        lambda: written("[]", claims(), rsa_key("one"), "RS256"),
        "not a signed JWT",
    ),
    "header that is deep": (
        lambda: written("[" * 3000, claims(), rsa_key("one"), "RS256"),
        "not a signed JWT",
    ),
    "claims that are a list": (
        lambda: written({"alg": "RS256", "kid": "one"}, "[]", rsa_key("one"), "RS256"),
        "not a signed JWT",
    ),
    "claims that never end": (
        lambda: written(
            {"alg": "RS256", "kid": "one"},
            twice(json.dumps(claims(exp=None)), "exp", "Infinity"),
            rsa_key("one"),
            "RS256",
        ),
        "not a signed JWT",
    ),
    "subject said twice": (
        lambda: written(
            {"alg": "RS256", "kid": "one"},
            twice(json.dumps(claims()), "sub", '"root"'),
            rsa_key("one"),
            "RS256",
        ),
        "not a signed JWT",
    ),
    "algorithm said twice": (
        lambda: written(
            twice('{"alg": "RS256", "kid": "one"}', "alg", '"none"'),
            claims(),
            rsa_key("one"),
            "RS256",
        ),
        "not a signed JWT",
    ),
    "elliptic name, RSA key": (
        lambda: written(
            {"alg": "ES256", "kid": "one"}, claims(), rsa_key("one"), "RS256"
        ),
        "not known",
    ),
    "RSA name, elliptic key": (
        lambda: written(
            {"alg": "RS256", "kid": "p256"}, claims(), ec_key("p256"), "ES256"
        ),
        "not known",
    ),
    "Edwards name, elliptic key": (
        lambda: written(
            {"alg": "EdDSA", "kid": "p256"}, claims(), ec_key("p256"), "ES256"
        ),
        "not known",
    ),
    "other curve": (
        lambda: written(
            {"alg": "ES384", "kid": "p256"}, claims(), ec_key("p256"), "ES256"
        ),
        "not known",
    ),
    "other padding": (
        lambda: written(
            {"alg": "PS256", "kid": "one"}, claims(), rsa_key("one"), "RS256"
        ),
        "signature",
    ),
    "signature of zeros": (
        lambda: (
            f"{encoded({'alg': 'ES256', 'kid': 'p256'})}.{encoded(claims())}."
            + b64(bytes(64))
        ),
        "signature",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_forged_token_is_believed(issuer, auth, attack):
    forge, reason = ATTACKS[attack]
    issuer.lists(rsa_key("one"), ec_key("p256"))
    assert auth.verifier.verify(signed(rsa_key("one"))) == ANN

    token = forge()

    assert reason in auth.refusal(token)
    assert auth.verifier.cached(token) is None
    # nobody was asked but the issuer, and by a name it may have had
    assert {each.path for each in issuer.server.requests} == {"/jwks"}
    assert issuer.fetches <= 2


@pytest.mark.parametrize("name", ["jku", "x5u"])
def test_an_address_of_keys_in_a_token_is_never_requested(issuer, auth, name):
    header = {name: f"{issuer.server.url}/trap"}

    assert "not known" in auth.refusal(resigned(header))
    assert "signature" in auth.refusal(resigned({**header, "kid": "one"}))
    assert {each.path for each in issuer.server.requests} == {"/jwks"}

    # a genuine token may say what it likes: its key is the issuer's
    genuine = signed(rsa_key("one"), header={"kid": "one", **header})
    assert auth.verifier.verify(genuine) == ANN


def test_no_key_of_a_pair_fits_hs256_even_where_it_is_allowed(issuer):
    trust = replace(issuer.trust(), algorithms=frozenset(Algorithm))
    auth = auth_setup(issuer, trust)

    assert auth.verifier.verify(signed(rsa_key("one"))) == ANN
    for secret in (as_pem(rsa_key("one")), rsa_key("one").as_der(private=False)):
        assert "not known" in auth.refusal(with_public_key_as_secret(secret))


def test_a_secret_fits_no_other_algorithm_even_where_it_is_allowed():
    trust = replace(secret_trust(), algorithms=frozenset(Algorithm))
    auth = secret_auth_setup(trust)

    assert "not known" in auth.refusal(signed(rsa_key("evil")))
    wrong = mac({"alg": "HS256"}, claims(), b"another secret")
    assert "signature" in auth.refusal(wrong)


def test_a_key_that_is_for_one_algorithm_verifies_no_other(issuer, auth):
    issuer.listed = [public(rsa_key("one"), alg="RS256")]

    assert auth.verifier.verify(signed(rsa_key("one"))) == ANN
    assert "not known" in auth.refusal(signed(rsa_key("one"), "PS256"))


def test_an_algorithm_that_is_not_in_the_list_is_refused(issuer):
    trust = replace(issuer.trust(), algorithms=frozenset({Algorithm.PS256}))
    auth = auth_setup(issuer, trust)

    assert "algorithm" in auth.refusal(signed(rsa_key("one")))
    assert auth.verifier.verify(signed(rsa_key("one"), "PS256")) == ANN


@given(st.text(max_size=60) | st.from_regex(r"[\w-]{1,20}\.[\w-]{1,20}\.[\w-]{1,20}"))
def test_no_text_whatever_does_more_than_be_refused(text):
    assert secret_auth_setup().refusal(text)


@given(st.data())
def test_no_character_of_a_token_can_be_changed(data):
    auth = secret_auth_setup()
    # the same each time: hypothesis goes back to what it has found
    result = claims(iat=None, exp=4_000_000_000)
    token = mac({"alg": "HS256"}, result, SECRET.encode())
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("AQgwBZ09-_.=+/ \n").filter(token[place].__ne__))

    assert auth.refusal(token[:place] + other + token[place + 1 :])
    assert auth.verifier.verify(token) == ANN


# the keys of a set


def weak() -> dict[str, Any]:
    return public(rsa_key("weak", 1024))


USELESS: dict[str, Callable[[], Any]] = {
    "weak": weak,
    "private": lambda: rsa_key("private").as_dict(private=True),
    "private elliptic": lambda: ec_key("private").as_dict(private=True),
    "symmetric": lambda: OctKey.generate_key(256, {"kid": "oct"}).as_dict(),
    "for encryption": lambda: public(rsa_key("enc"), use="enc"),
    "for other operations": lambda: public(rsa_key("enc"), key_ops=["wrapKey"]),
    "operations of no kind": lambda: public(rsa_key("enc"), key_ops=5),
    "other curve": lambda: public(ec_key("bitcoin", "secp256k1")),
    "curve of no kind": lambda: public(ec_key("p256"), crv=["P-256"]),
    "other Edwards curve": lambda: public(edwards_key("ed448", "Ed448")),
    "exchange": lambda: public(edwards_key("x", "X25519")),
    "off the curve": lambda: public(ec_key("p256"), x=public(ec_key("q"))["x"]),
    "unknown kind": lambda: {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
    "no kind": lambda: {"kid": "x"},
    "without numbers": lambda: {"kty": "RSA", "kid": "x"},
    "numbers of no kind": lambda: public(rsa_key("one"), n=5),
    "numbers that are no text": lambda: public(rsa_key("one"), e="?"),
    "even exponent": lambda: public(rsa_key("one"), e="Ag"),
    "for an algorithm of another kind": lambda: public(rsa_key("one"), alg="ES256"),
    "for encryption by name": lambda: public(rsa_key("one"), alg="RSA-OAEP"),
    "algorithm of no kind": lambda: public(rsa_key("one"), alg=["RS256"]),
    "name of no kind": lambda: public(rsa_key("one"), kid=7),
    "text": lambda: "key",
    "nothing": lambda: None,
}


@pytest.mark.parametrize("case", USELESS)
def test_a_key_that_cannot_be_used_is_left_out_and_harms_no_other(case):
    good = public(rsa_key("one"))

    stored = public_keys({"keys": [USELESS[case](), good]})

    assert [each.kid for each in stored] == ["one"]
    assert stored[0].mark == public_keys({"keys": [good]})[0].mark


def test_a_token_of_a_weak_key_is_refused(issuer, auth):
    issuer.listed = [weak(), public(rsa_key("one"))]

    assert "not known" in auth.refusal(signed(rsa_key("weak", 1024)))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda deeper: (
        st.lists(deeper, max_size=3)
        | st.dictionaries(st.text(max_size=4), deeper, max_size=3)
    ),
    max_leaves=4,
)
strange_keys = st.fixed_dictionaries(
    {"kty": st.sampled_from(["RSA", "EC", "OKP", "oct"]) | anything},
    optional={
        "crv": st.sampled_from(["P-256", "Ed25519"]) | anything,
        "n": st.builds(lambda: public(rsa_key("one"))["n"]) | anything,
        **dict.fromkeys(["x", "y", "e", "kid", "alg", "use", "key_ops"], anything),
    },
)


@given(st.lists(strange_keys | anything, max_size=3))
def test_no_set_of_keys_stops_us_from_reading_it(listed):
    for each in public_keys({"keys": listed}):
        assert each.algorithms <= ASYMMETRIC


# tokens that were seen before


def test_a_token_that_was_verified_is_known_for_a_minute(issuer, auth):
    token = signed(rsa_key("one"))
    assert auth.verifier.cached(token) is None

    assert auth.verifier.verify(token) == ANN
    assert auth.verifier.cached(token) == ANN
    auth.clock.passed = 59
    assert auth.verifier.cached(token) == ANN
    auth.clock.passed = 61
    assert auth.verifier.cached(token) is None
    assert auth.verifier.verify(token) == ANN
    assert auth.verifier.cached(token) == ANN


def test_a_token_is_not_known_beyond_its_end(issuer, auth):
    token = signed(rsa_key("one"), exp=time.time() + 20)
    auth.verifier.verify(token)

    auth.clock.passed = 19
    assert auth.verifier.cached(token) == ANN
    auth.clock.passed = 21
    assert auth.verifier.cached(token) is None
    # clocks may differ by so much, and each request is judged anew
    assert auth.verifier.verify(token) == ANN
    assert auth.verifier.cached(token) is None
    auth.clock.passed = 51
    assert "expired" in auth.refusal(token)


def test_a_clock_that_is_turned_back_keeps_no_token_longer(issuer, auth):
    token = signed(rsa_key("one"), iat=None)
    auth.verifier.verify(token)

    auth.clock.turned_back = 3600
    auth.clock.passed = 61

    assert auth.verifier.cached(token) is None


class CountedKeyring(SecretKeyring):
    """Counts how often a key was taken to verify a token."""

    taken = 0

    @override
    def fitting(self, heading: TokenHeader) -> Sequence[VerifyingKey]:
        self.taken += 1
        return super().fitting(heading)


def test_a_known_token_is_not_verified_again():
    keyring = CountedKeyring(shared_key(SECRET))
    verifier = JwtVerifier(secret_trust(), keyring)
    token = mac({"alg": "HS256"}, claims(), SECRET.encode())

    for _ in range(5):
        assert verifier.verify(token) == ANN
        assert verifier.cached(token) == ANN

    assert keyring.taken == 1


def test_a_refused_token_is_not_remembered(issuer, auth):
    auth.refusal(signed(rsa_key("one"), aud="other"))
    assert len(auth.memory) == 0


def test_the_oldest_tokens_make_room():
    memory = TokenCache(most=3)
    verifier = JwtVerifier(
        secret_trust(), SecretKeyring(shared_key(SECRET)), memory=memory
    )
    tokens = [
        mac({"alg": "HS256"}, claims(jti=number), SECRET.encode())
        for number in range(5)
    ]

    for token in tokens:
        verifier.verify(token)

    assert [verifier.cached(token) for token in tokens] == [None, None, ANN, ANN, ANN]
    assert len(memory) == 3


def test_the_memory_is_bounded_also_for_many_threads():
    memory = TokenCache(most=16)
    verifier = JwtVerifier(
        secret_trust(), SecretKeyring(shared_key(SECRET)), memory=memory
    )

    def many(index: int) -> bool:
        tokens = [
            mac({"alg": "HS256"}, claims(jti=f"{index} {n}"), SECRET.encode())
            for n in range(50)
        ]
        return all(verifier.verify(token) == ANN for token in tokens)

    assert together(8, many) == [True] * 8
    assert len(memory) == 16


def test_the_memory_holds_no_token(issuer, auth):
    token = signed(rsa_key("one"))
    auth.verifier.verify(token)

    assert token not in repr(vars(auth.memory))
    assert len(auth.memory) == 1
