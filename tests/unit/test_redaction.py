"""One redactor hides every secret in every encoding, wherever a text is shown."""

import base64
import html
import io
import json
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.http import HttpSourceReader
from penstock.adapters.http.response_status import snippet
from penstock.adapters.telemetry.log import log_events
from penstock.domain.events import MaintenanceFailed
from penstock.domain.jobs import WorkerId
from penstock.domain.redaction import MASK, MAX_ISSUED_TOKENS, Redactor
from penstock.domain.sharding.shard import Shard
from penstock.errors import Conflict, Misconfigured
from penstock.flow.start_import import as_conflict
from penstock.settings import Settings, declaration_digest, load

CANARY = 'c4n/Ry: "ü&\\(x'
ENCODINGS = {
    "plain": CANARY,
    "form": quote_plus(CANARY),
    "percent": quote(CANARY, safe=""),
    "JSON": json.dumps(CANARY)[1:-1],
    "JSON in UTF-8": json.dumps(CANARY, ensure_ascii=False)[1:-1],
    # formerly hidden by the settings only
    "path": quote(CANARY),
    "Python": repr(CANARY)[1:-1],
    # formerly hidden by the HTTP source only
    "query": quote(CANARY, safe=",:()"),
    # formerly hidden by neither
    "small percent": quote(CANARY, safe="").replace("%C3%BC", "%c3%bc"),
    "JSON of PHP": json.dumps(CANARY)[1:-1].replace("/", r"\/"),
    "JSON of Go": json.dumps(CANARY)[1:-1].replace("&", r"\u0026"),
    "ASCII": ascii(CANARY)[1:-1],
    "HTML": html.escape(CANARY),
    "base64": base64.b64encode(CANARY.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(CANARY.encode()).decode(),
}

DATASET = """\
[datasets.poi]
key = "id"
fields = { id = { type = "int" } }
[datasets.poi.source]
url = "https://api.example.org/poi"
"""


@pytest.fixture
def read(tmp_path: Path):
    def read_text(text: str, **environ: str) -> Settings:
        path = tmp_path / "penstock.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ)

    return read_text


def in_a_message(settings: Settings, text: str) -> str:
    return settings.redact(text)


def in_a_log(settings: Settings, text: str) -> str:
    out = io.StringIO()
    emit = log_events(redact=settings.redact, as_json=True, stream=out)
    emit(MaintenanceFailed(task="leases", worker=WorkerId("w"), error=text))
    return str(json.loads(out.getvalue())["error"])


def in_a_response(settings: Settings, text: str) -> str:
    return snippet(text.encode(), settings.redact)


def in_a_conflict(settings: Settings, text: str) -> str:
    with pytest.raises(Conflict) as caught, as_conflict(settings.redact):
        raise Misconfigured(text)
    return str(caught.value)


PATHS = [in_a_message, in_a_log, in_a_response, in_a_conflict]


@pytest.mark.parametrize("show", PATHS)
@pytest.mark.parametrize("form", ENCODINGS.values(), ids=ENCODINGS)
def test_every_path_hides_every_encoding(read, show, form):
    settings = read(DATASET + 'query = { q = "${CANARY}" }', CANARY=CANARY)

    assert show(settings, f"<{form}>") == "<${CANARY}>"


SECRETS = {
    # formerly known to the settings only
    "an address": ("[penstock]\ndatabase = 'postgresql://u:c4nary@h/d'\n", ""),
    "four letters": ("", "query = { q = '${FOUR}' }"),
    # formerly known to the HTTP source only
    "a header": ("", "headers = { X-Access-Key = 'c4nary' }"),
    "a parameter": ("", "query = { session_token = 'c4nary' }"),
    "a body": ("", "method = 'POST'\nbody = { a = [{ client_secret = 'c4nary' }] }"),
    # known to both
    "a bearer": ("", "auth = { type = 'bearer', token = 'c4nary' }"),
}


@pytest.mark.parametrize("show", PATHS)
@pytest.mark.parametrize(("before", "after"), SECRETS.values(), ids=SECRETS)
def test_every_path_knows_every_secret(read, show, before, after):
    settings = read(before + DATASET + after, FOUR="c4na")

    assert "c4na" not in show(settings, "c4nary")


@pytest.mark.parametrize("show", PATHS)
def test_every_path_hides_a_token_of_the_run(read, show):
    settings = read(DATASET)

    settings.redact.add_issued("t0ken")

    assert show(settings, "Bearer t0ken") == "Bearer ***"


def test_a_short_credential_is_hidden_in_responses_but_revealed_by_no_sentence(read):
    auth = "auth = { type = 'basic', username = 'ann', password = 'is' }"
    pair = base64.b64encode(b"ann:is").decode()
    settings = read(DATASET + auth)

    shown = in_a_response(settings, f"this is wrong: {pair}")

    assert shown == "this *** wrong: ${datasets.poi.source.auth.password}"
    assert settings.redact("this is wrong") == "this is wrong"


def test_a_preview_hides_literals_of_the_request(read):
    body = "method = 'POST'\nbody = { password = 'c4nary' }\n"
    settings = read(DATASET + body + "query = { access-key = 'c4n,(/ry' }")
    reader = HttpSourceReader(
        settings.dataset("poi"), stop_on=frozenset(), redactor=settings.redact
    )

    shown = reader.preview(Shard((), ()), since=None)

    at = "datasets.poi.source"
    assert f"?access-key=${{{at}.query.access-key}}" in shown
    assert f'{{"password":"${{{at}.body.password}}"}}' in shown


def test_a_literal_of_an_invalid_dataset_is_in_no_problem(read):
    source = "auth = { type = 'bearer', token = 'c4nary' }\ntimeout = 'c4nary'"

    with pytest.raises(Misconfigured) as caught:
        read(DATASET + source)

    assert "timeout" in str(caught.value)
    assert "c4nary" not in str(caught.value)


@pytest.mark.parametrize("name", ["keyword", "author", "sort_key", "q"])
def test_an_ordinary_parameter_is_no_secret(read, name):
    settings = read(DATASET + f"query = {{ {name} = 'title' }}")

    assert settings.redact("the title, the titles") == "the title, the titles"


def test_a_literal_that_is_only_likely_a_secret_stays_in_the_digest(read):
    """Otherwise an import would go on with another request."""
    old, new = (read(DATASET + f"query = {{ sort_key = '{by}_at' }}") for by in "ab")

    assert old.secrets == new.secrets == {}
    digests = [
        declaration_digest(each.dataset("poi"), redact=Redactor(each.secrets))
        for each in (old, new)
    ]
    assert digests[0] != digests[1]


def test_nothing_remains_of_secrets_that_overlap():
    redact = Redactor({"abcdef": "A", "defghi": "B", "cde": "C"})

    assert redact("<abcdefghi> <defghi>") == "<A> <B>"


def test_nothing_remains_of_a_secret_across_the_limit():
    redact = Redactor({"s3cr3t": "A"})

    assert redact.redact_traffic("12345s3cr3t", 8) == "12345A"
    assert redact.redact_traffic("12345 s3cr3t", 5) == "12345"
    assert redact.redact_traffic("1234567890", 8) == "12345678"


def test_nothing_remains_of_a_long_token_that_a_response_repeats():
    redactor = Redactor({})
    redactor.add_issued("t0ken" * 300)

    assert snippet(b"t0ken" * 300 * 30, redactor) == MASK * 3


def test_the_newest_tokens_stay_secret():
    redact = Redactor({})
    for number in range(10 * MAX_ISSUED_TOKENS):
        redact.add_issued(f"t0ken-{number:05}")

    newest = f"t0ken-{10 * MAX_ISSUED_TOKENS - 1:05}"
    assert redact(newest) == MASK


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4), st.text())
def test_any_text_may_be_a_secret(secret, text):
    redact = Redactor({secret: ""})

    for form in (secret, quote(secret, safe="&("), json.dumps(secret)[1:-1]):
        assert redact(f"\0{form}\0") == "\0\0" or "\0" in form
    if secret not in text:
        assert len(redact(text)) <= len(text)


@pytest.mark.parametrize("part", ["\\", '\\"', "%25", "&amp;", "a", "+ ", "/"])
def test_the_time_grows_with_the_text_only(part):
    redact = Redactor({part * 40 + "!": "A"})
    text = part * (400_000 // len(part))

    started_at = time.perf_counter()
    assert redact(text) == text
    assert time.perf_counter() - started_at < 10
