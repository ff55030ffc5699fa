"""Who may do what: what a token must say, and what the settings may ask of it."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.auth_claims import (
    DEFAULT_ALGORITHMS,
    AccessScope,
    Algorithm,
    AuthConfig,
    Principal,
    PublishedKeys,
    SharedSecret,
    TokenHeader,
    parse_token_header,
    verify_claims,
)
from penstock.errors import ClientError, Forbidden, Misconfigured, Unauthenticated
from penstock.settings import Settings, load

NOW = 1_800_000_000.0
TRUST = AuthConfig(
    issuer="https://id.example.org/",
    audience="penstock",
    keys=PublishedKeys("https://id.example.org/jwks.json"),
    algorithms=frozenset({Algorithm.RS256, Algorithm.ES256}),
)
CLAIMS = {
    "iss": "https://id.example.org/",
    "aud": "penstock",
    "sub": "ann",
    "exp": NOW + 300,
    "scope": "read",
}
SECRET = "0123456789-a-secret-of-forty-two-bytes-xyz"

every_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda deeper: (
        st.lists(deeper, max_size=3)
        | st.dictionaries(st.text(max_size=3), deeper, max_size=3)
    ),
    max_leaves=5,
)


def believed(trust: AuthConfig = TRUST, **claims: object) -> Principal:
    return verify_claims({**CLAIMS, **claims}, trust, now=NOW).principal


def refusal(*without: str, **claims: object) -> str:
    result = {name: CLAIMS[name] for name in CLAIMS if name not in without}
    with pytest.raises(Unauthenticated) as caught:
        verify_claims({**result, **claims}, TRUST, now=NOW)
    return str(caught.value)


def test_a_token_says_whose_it_is_and_what_it_may_do():
    assert believed() == Principal("ann", frozenset({AccessScope.READ}))


def test_a_token_is_admitted_until_it_ends():
    assert verify_claims(CLAIMS, TRUST, now=NOW).until == NOW + 300


SCOPES: dict[str, tuple[Any, set[AccessScope]]] = {
    "nothing": ("", set()),
    "read": ("read", {AccessScope.READ}),
    "write includes read": ("write", {AccessScope.READ, AccessScope.WRITE}),
    "operate includes read": ("operate", {AccessScope.READ, AccessScope.OPERATE}),
    "all": ("operate  write", {*AccessScope}),
    "unknown ones are ignored": ("openid read profile", {AccessScope.READ}),
    "capitals are others": ("READ", set()),
    "a list": (["write"], {AccessScope.READ, AccessScope.WRITE}),
    "a list is not split": (["read write"], set()),
}


@pytest.mark.parametrize("case", SCOPES)
@pytest.mark.parametrize("claim", ["scope", "scp", "scopes"])
def test_scopes_are_read_from_text_or_list(case, claim):
    written, expected = SCOPES[case]
    claims: dict[str, Any] = {"scope": None, claim: written}
    assert believed(**claims).scopes == expected


def test_the_first_claim_that_is_there_holds_the_scopes():
    assert believed(scope="read", scp=["write"]).scopes == {AccessScope.READ}
    assert believed(scope=None, scp=["write"], scopes=["operate"]).scopes == {
        AccessScope.READ,
        AccessScope.WRITE,
    }


def test_a_declared_claim_is_the_only_one_that_counts():
    trust = replace(TRUST, scope_claim="permissions")

    assert believed(trust).scopes == set()
    assert believed(trust, permissions=["operate"]).scopes == {
        AccessScope.READ,
        AccessScope.OPERATE,
    }


def test_who_lacks_a_scope_is_reported_which():
    ann = believed(scope="write")

    ann.require(AccessScope.READ)
    ann.require(AccessScope.WRITE)
    with pytest.raises(Forbidden, match="lacks the scope 'operate'") as caught:
        ann.require(AccessScope.OPERATE)

    assert caught.value.scope == "operate"
    assert isinstance(caught.value, ClientError)
    with pytest.raises(Forbidden):
        believed(scope="operate").require(AccessScope.WRITE)


@pytest.mark.parametrize(
    "claims", [{"aud": ["other", "penstock"]}, {"aud": "penstock"}]
)
def test_the_audience_is_a_text_or_in_a_list(claims):
    assert believed(**claims).subject == "ann"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other issuer": ({"iss": "https://evil.example.org/"}, "issuer (iss)"),
    "issuer without its slash": ({"iss": "https://id.example.org"}, "issuer (iss)"),
    "issuer as list": ({"iss": ["https://id.example.org/"]}, "issuer (iss)"),
    "other audience": ({"aud": "penstock2"}, "audience (aud)"),
    "part of the audience": ({"aud": "pen"}, "audience (aud)"),
    "longer audience": ({"aud": "my penstock"}, "audience (aud)"),
    "audience in no list": ({"aud": ["a", "b"]}, "audience (aud)"),
    "audience of numbers": ({"aud": [1]}, "(aud) that is neither text nor list"),
    "audience as table": ({"aud": {"penstock": 1}}, "(aud) that is neither"),
    "expired": ({"exp": NOW - 30}, "expired (exp)"),
    "end as text": ({"exp": str(NOW + 300)}, "(exp) that is no number"),
    "end as truth": ({"exp": True}, "(exp) that is no number"),
    "end that never comes": ({"exp": math.nan}, "(exp) that is no number"),
    "end without end": ({"exp": math.inf}, "(exp) that is no number"),
    "not yet": ({"nbf": NOW + 31}, "not valid yet (nbf)"),
    "beginning as text": ({"nbf": "0"}, "(nbf) that is no number"),
    "future": ({"iat": NOW + 31}, "issued in the future (iat)"),
    "birth as list": ({"iat": []}, "(iat) that is no number"),
    "nobody": ({"sub": ""}, "whose it is (sub)"),
    "a number": ({"sub": 7}, "whose it is (sub)"),
    "a line break": ({"sub": "ann\nroot"}, "whose it is (sub)"),
    "a long name": ({"sub": "a" * 256}, "whose it is (sub)"),
    "scopes as number": ({"scope": 7}, "(scope) that is neither text nor list"),
    "scopes of numbers": ({"scope": [7]}, "(scope) that is neither text nor list"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_claims_that_are_not_as_they_must_be_are_refused(case):
    claims, reason = REFUSED[case]
    assert reason in refusal(**claims)


@pytest.mark.parametrize("name", ["iss", "aud", "exp", "sub"])
def test_claims_that_must_be_there_are_demanded(name):
    assert f"({name})" in refusal(name)
    assert f"({name})" in refusal(**{name: None})


def test_clocks_may_differ_by_the_leeway():
    assert believed(exp=NOW - 29).subject == "ann"
    assert believed(nbf=NOW + 30, iat=NOW + 30).subject == "ann"

    strict = replace(TRUST, leeway=timedelta(0))
    with pytest.raises(Unauthenticated):
        believed(strict, exp=NOW)
    with pytest.raises(Unauthenticated):
        believed(strict, nbf=NOW + 1)


def test_times_may_be_larger_than_any_calendar():
    assert believed(exp=10**400).subject == "ann"
    assert "expired" in refusal(exp=-(10**400))
    assert "not valid yet" in refusal(nbf=10**400)


@given(st.dictionaries(st.sampled_from([*CLAIMS, "nbf", "iat", "scp"]), every_json))
def test_whatever_stands_in_the_claims_is_believed_or_refused(claims):
    try:
        subject = believed(**claims).subject
    except Unauthenticated:
        return
    assert subject == claims.get("sub", "ann")


HEADERS = {
    "plain": {"alg": "RS256"},
    "typed": {"alg": "RS256", "typ": "JWT"},
    "in small letters": {"alg": "RS256", "typ": "jwt"},
    "access token": {"alg": "RS256", "typ": "at+jwt"},
    "in full": {"alg": "RS256", "typ": "application/at+jwt"},
    # some issuers write them; the keys come from elsewhere all the same
    "with an address": {"alg": "RS256", "jku": "https://id.example.org/jwks.json"},
    "with what is unknown": {"alg": "RS256", "nonce": "x", "x5t": "y"},
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_names_its_algorithm(case):
    assert parse_token_header(HEADERS[case], TRUST) == TokenHeader(
        Algorithm.RS256, None
    )


def test_a_header_may_name_its_key():
    heading = parse_token_header({"alg": "ES256", "kid": "../../etc/passwd"}, TRUST)
    assert heading == TokenHeader(Algorithm.ES256, "../../etc/passwd")


WRONG_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "no algorithm": ({}, "algorithm (alg)"),
    "none": ({"alg": "none"}, "algorithm (alg)"),
    "None": ({"alg": "None"}, "algorithm (alg)"),
    "symmetric": ({"alg": "HS256"}, "algorithm (alg)"),
    "not in the list": ({"alg": "RS512"}, "algorithm (alg)"),
    "in small letters": ({"alg": "rs256"}, "algorithm (alg)"),
    "a list": ({"alg": ["RS256"]}, "algorithm (alg)"),
    "a table": ({"alg": {"RS256": 1}}, "algorithm (alg)"),
    "an extension": ({"alg": "RS256", "crit": ["exp"], "exp": 1}, "(crit)"),
    "a known parameter": ({"alg": "RS256", "crit": ["alg"]}, "(crit)"),
    "an unencoded payload": ({"alg": "RS256", "crit": ["b64"], "b64": False}, "(crit)"),
    "no extension": ({"alg": "RS256", "crit": []}, "(crit)"),
    "extensions of no kind": ({"alg": "RS256", "crit": None}, "(crit)"),
    "an identity": ({"alg": "RS256", "typ": "logout+jwt"}, "(typ)"),
    "a proof": ({"alg": "RS256", "typ": "dpop+jwt"}, "(typ)"),
    "type of no kind": ({"alg": "RS256", "typ": 1}, "(typ)"),
    "name as number": ({"alg": "RS256", "kid": 1}, "(kid)"),
    "name as list": ({"alg": "RS256", "kid": ["a"]}, "(kid)"),
}


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_headers_that_promise_nothing_good_are_refused(case):
    header, reason = WRONG_HEADERS[case]
    with pytest.raises(Unauthenticated) as caught:
        parse_token_header(header, TRUST)
    assert reason in str(caught.value)


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit"]), every_json))
def test_whatever_stands_in_a_header_is_read_or_refused(header):
    try:
        heading = parse_token_header(header, TRUST)
    except Unauthenticated:
        return
    assert heading.algorithm in TRUST.algorithms


def test_a_secret_is_not_shown():
    trust = replace(TRUST, keys=SharedSecret(SECRET))
    assert SECRET not in repr(trust)


# the settings

DATASET = """
[datasets.poi]
key = "id"
[datasets.poi.fields]
id = { type = "int" }
[datasets.poi.source]
url = "https://api.example.org/poi"
"""
ISSUER = '[auth]\nissuer = "https://id.example.org/"\naudience = "penstock"\n'
JWKS = ISSUER + 'jwks = "https://id.example.org/jwks.json"\n'
SHARED = ISSUER + 'secret = "${SECRET}"\n'


@pytest.fixture
def read(tmp_path):
    def read_text(auth: str, secret: str = SECRET) -> Settings:
        path = tmp_path / "penstock.toml"
        path.write_text(DATASET + auth, encoding="utf-8")
        return load(path, {"SECRET": secret})

    return read_text


@pytest.fixture
def refuse(read, tmp_path):
    def refused(auth: str, secret: str = SECRET) -> list[str]:
        with pytest.raises(Misconfigured) as caught:
            read(auth, secret)
        prefix = f"{tmp_path / 'penstock.toml'}: "
        return [each.removeprefix(prefix) for each in caught.value.problems]

    return refused


def test_without_the_table_nobody_is_trusted(read):
    assert read("").auth is None


def test_published_keys_are_trusted(read):
    assert read(JWKS).auth == AuthConfig(
        issuer="https://id.example.org/",
        audience="penstock",
        keys=PublishedKeys("https://id.example.org/jwks.json"),
        algorithms=frozenset(DEFAULT_ALGORITHMS),
        leeway=timedelta(seconds=30),
        scope_claim=None,
    )
    assert Algorithm.HS256 not in DEFAULT_ALGORITHMS


def test_a_secret_goes_with_one_algorithm(read):
    auth = read(SHARED).auth
    assert auth is not None
    assert auth.keys == SharedSecret(SECRET)
    assert auth.algorithms == {Algorithm.HS256}


def test_everything_else_can_be_said(read):
    auth = read(
        JWKS + 'algorithms = ["ES384", "EdDSA"]\nleeway = "0s"\nscope_claim = "roles"'
    ).auth
    assert auth is not None
    assert auth.algorithms == {Algorithm.ES384, Algorithm.EDDSA}
    assert auth.leeway == timedelta(0)
    assert auth.scope_claim == "roles"
    single = read(JWKS + 'algorithms = "PS512"').auth
    assert single is not None
    assert single.algorithms == {Algorithm.PS512}


def test_a_secret_is_hidden_however_it_is_written(read, refuse):
    filled = read(SHARED)
    written = read(ISSUER + f"secret = '{SECRET}'")
    refused = refuse(ISSUER + f"secret = '{SECRET}'\njwks = '{SECRET}'")

    assert filled.redact(f"a {SECRET} b") == "a ${SECRET} b"
    assert written.redact(f"a {SECRET} b") == "a ${auth.secret} b"
    for settings in (filled, written):
        assert SECRET not in f"{settings!r} {settings.auth!r}"
    assert SECRET not in json.dumps(refused)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/jwks",
        "http://localhost/jwks",
        "http://[::1]:1/jwks",
        "https://id.example.org/jwks?p=policy",
    ],
)
def test_keys_may_come_from_this_machine_without_tls(read, url):
    auth = read(ISSUER + f'jwks = "{url}"').auth
    assert auth is not None
    assert auth.keys == PublishedKeys(url)


WRONG = {
    "no keys": (ISSUER, "auth: needs jwks, the address of the issuer's keys, or"),
    "both": (SHARED + 'jwks = "https://x/"', "auth.secret: and jwks exclude each"),
    "empty": ("[auth]", "auth.issuer: is required"),
    "no table": ("auth = 5", "auth: must be a table, not a whole number"),
    "no issuer": ('[auth]\naudience = "a"', "auth.issuer: is required"),
    "no audience": ('[auth]\nissuer = "a"', "auth.audience: is required"),
    "empty issuer": ('[auth]\nissuer = ""', "auth.issuer: must not be empty"),
    "a line": ('[auth]\nissuer = "a\\n"', "auth.issuer: holds a line break"),
    "unknown key": (JWKS + "jwk = 1", "auth.jwk: unknown key; did you mean 'jwks'?"),
    "http": (ISSUER + 'jwks = "http://id.example.org/"', "must begin with https://:"),
    "private": (ISSUER + 'jwks = "http://10.0.0.1/"', "must begin with https://:"),
    "any": (ISSUER + 'jwks = "http://0.0.0.0/"', "must begin with https://:"),
    "looks local": (ISSUER + 'jwks = "http://localhost.evil/"', "must begin with"),
    "file": (ISSUER + 'jwks = "file:///etc/passwd"', "is not an address such as"),
    "ftp": (ISSUER + 'jwks = "ftp://x/keys"', "auth.jwks: must begin with https://"),
    "words": (ISSUER + 'jwks = "the keys"', "auth.jwks: is not an address such as"),
    "bracket": (ISSUER + 'jwks = "https://[::1"', "auth.jwks: is not an address"),
    "port": (ISSUER + 'jwks = "https://x:99999/"', "auth.jwks: is not an address"),
    "password": (ISSUER + 'jwks = "https://a:b@x/"', "must hold neither a password"),
    "short": (ISSUER + f"secret = '{'s' * 31}'", "auth.secret: is shorter than 32"),
    "empty secret": (ISSUER + "secret = ''", "auth.secret: must not be empty"),
    "newline": (ISSUER + f'secret = "{SECRET}\\n"', "auth.secret: holds a line break"),
    "a public key": (
        ISSUER + "secret = '-----BEGIN PUBLIC KEY----- MIIBIjANBgkqhkiG9w0B'",
        "auth.secret: is a key of a pair, not a secret to be shared",
    ),
    "none": (JWKS + 'algorithms = ["none"]', "algorithms[0]: 'none' is not one of"),
    "hs": (JWKS + 'algorithms = ["RS256", "HS256"]', "algorithms[1]: HS256 needs no"),
    "number": (JWKS + "algorithms = [256]", "algorithms[0]: must be one of RS256"),
    "typo": (JWKS + 'algorithms = "ES265"', "did you mean 'ES256'?"),
    "no algorithm": (JWKS + "algorithms = []", "auth.algorithms: must have at least 1"),
    "algorithm of a secret": (
        SHARED + 'algorithms = "RS256"',
        "auth.algorithms: are for jwks; a secret goes with HS256 only",
    ),
    "leeway": (JWKS + 'leeway = "6m"', "auth.leeway: is longer than 5m"),
    "leeway as number": (JWKS + "leeway = 30", "auth.leeway: must be a duration"),
    "unset": (ISSUER + 'secret = "${NOWHERE}"', "variable 'NOWHERE' is not set"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_refused_with_its_place_and_a_remedy(refuse, case):
    auth, result = WRONG[case]
    problems = refuse(auth)
    assert any(result in each for each in problems), problems
    assert SECRET not in json.dumps(problems)


@pytest.mark.parametrize("word", ["short", "bytes", "secret", "HS256", "auth"])
def test_a_short_secret_is_not_reported_by_hiding_it(refuse, word):
    (problem,) = refuse(SHARED, secret=word)

    assert problem == (
        "auth.secret: is shorter than 32 bytes: HS256 is no stronger than its secret; "
        "make one: openssl rand -base64 48"
    )


def test_a_short_secret_is_hidden_in_what_is_said_of_other_keys(refuse):
    (problem,) = refuse(JWKS + "algorithms = ['${SECRET}']", secret="hidden")

    assert "'${SECRET}' is not one of" in problem
