"""`penstock token` signs what the verifier of the same settings believes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt

from penstock.adapters.jwt.jwk import shared_key
from penstock.domain.auth_claims import AccessScope, Principal
from penstock.settings import load
from penstock.wiring.auth import verifier_of
from tests.support.scripted_server import (
    scripted_server,
)
from tests.support.token_issuer import (
    ANN,
    AUDIENCE,
    ISSUER,
    SECRET,
    Issuer,
    rsa_key,
    signed,
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with scripted_server() as server:
        yield Issuer(server)


DATASET = """
[datasets.poi]
key = "id"
[datasets.poi.fields]
id = { type = "int" }
[datasets.poi.source]
url = "https://api.example.org/poi"
"""
AUTH = f'[auth]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\n'
SHARED = AUTH + 'secret = "${CANARY}"\n'


@dataclass(frozen=True)
class CommandOutput:
    code: int
    out: str
    err: str


@pytest.fixture
def penstock(tmp_path: Path) -> Callable[..., CommandOutput]:
    def run(auth: str, *arguments: str) -> CommandOutput:
        (tmp_path / "penstock.toml").write_text(DATASET + auth, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "token", *arguments],
            cwd=tmp_path,
            env={**os.environ, "CANARY": SECRET},
            capture_output=True,
            text=True,
            check=False,
        )
        assert SECRET not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    return run


def verifier_in(folder: Path) -> Any:
    return verifier_of(load(folder / "penstock.toml", {"CANARY": SECRET}))


def test_the_command_signs_what_the_api_believes(penstock, tmp_path):
    result = penstock(
        SHARED, "--scope", "read", "--scope", "operate", "--subject", "bob"
    )

    assert result.code == 0
    assert result.err == ""
    assert verifier_in(tmp_path).verify(result.out.strip()) == Principal(
        "bob", frozenset({AccessScope.READ, AccessScope.OPERATE})
    )


def test_the_command_tells_machines_more(penstock, tmp_path):
    before = time.time()
    result = penstock(
        SHARED + 'scope_claim = "roles"',
        *("--scope", "write", "--scope", "write", "--for", "2h30m", "--json"),
    )

    document = json.loads(result.out)
    assert result.code == 0
    assert document["scopes"] == ["write"]
    assert document["subject"] == "penstock"
    ends = datetime.fromisoformat(document["expires_at"]).timestamp()
    assert before + 8999 <= ends <= time.time() + 9001
    principal = verifier_in(tmp_path).verify(document["token"])
    assert principal.scopes == {AccessScope.READ, AccessScope.WRITE}
    claimed = jwt.decode(document["token"], shared_key(SECRET).key, ["HS256"]).claims
    assert claimed["exp"] == ends
    assert claimed["exp"] - claimed["iat"] == 9000
    assert claimed["roles"] == "write"


WRONG_USES = {
    "without auth": ("", ["--scope", "read"], "there is no [auth]"),
    "with published keys": (
        AUTH + 'jwks = "https://id.example.org/jwks.json"',
        ["--scope", "read"],
        f"only the issuer can sign; get a token from '{ISSUER}' with audience",
    ),
    "without a scope": (SHARED, [], "--scope"),
    "with an unknown scope": (SHARED, ["--scope", "admin"], "'read', 'write'"),
    "for no time": (SHARED, ["--scope", "read", "--for", "0s"], "longer than nothing"),
    "for ever": (SHARED, ["--scope", "read", "--for", "9999d"], "longer than 366d"),
    "for something": (SHARED, ["--scope", "read", "--for", "long"], "not a duration"),
    "for nobody": (SHARED, ["--scope", "read", "--subject", ""], "--subject: is empty"),
    "with a short secret": (
        AUTH + "secret = 'too short'",
        ["--scope", "read"],
        "auth.secret: is shorter than 32 bytes",
    ),
}


@pytest.mark.parametrize("case", WRONG_USES)
def test_the_command_says_what_to_do_instead(penstock, case):
    auth, arguments, sentence = WRONG_USES[case]

    result = penstock(auth, *arguments)
    document = json.loads(penstock(auth, *arguments, "--json").out)

    assert result.code == 2
    assert result.out == ""
    assert sentence in result.err
    assert set(document) == {"error"}


def test_settings_bring_a_verifier_or_none(issuer, tmp_path):
    path = tmp_path / "penstock.toml"
    path.write_text(DATASET, encoding="utf-8")
    assert verifier_in(tmp_path) is None

    path.write_text(DATASET + AUTH + f'jwks = "{issuer.url}"', encoding="utf-8")
    verifier = verifier_in(tmp_path)
    assert verifier.verify(signed(rsa_key("one"))) == ANN
    assert issuer.fetches == 1
