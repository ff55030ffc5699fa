"""The documentation says what the code does, and what it names exists."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from docs import generate

from penstock.domain.record_validation import RecordValidator
from penstock.domain.search.filter_params import read_query
from penstock.domain.search.search_params import read_facets, read_search, read_suggest
from penstock.entrypoints.api.app import all_endpoints
from penstock.entrypoints.api.problems import TITLES
from penstock.settings import load
from penstock.settings.models.base import TomlModel
from penstock.settings.models.dataset import AnyDatasetTable, CsvDatasetTable

ROOT = Path(__file__).parents[2]
SKIPPED = {".git", ".venv", "build", "dist", "__pycache__", "node_modules"}
TEXTS = {".md", ".py", ".toml", ".txt", ".sql", ".in", ".cfg", ".ini", ".sh", ""}
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# written in pieces, so that this file does not find itself
FORBIDDEN = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + "hosted",
            "/sim" + "ple/",
            r"--(extra-)?index" + "-url",
            "/ho" + "me/",
            "/Us" + "ers/",
            "/ro" + "ot/",
            "/wo" + "rk/",
        ]
    )
)


def files(suffixes):
    """Yield our own text files; folders that tools write begin with a dot."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            each
            for each in folders
            if each not in SKIPPED and (not each.startswith(".") or each == ".ci")
        ]
        for name in names:
            path = Path(folder, name)
            if path.suffix in suffixes and not name.startswith("."):
                yield path


def reference(name):
    return (ROOT / "docs" / "reference" / name).read_text("utf-8")


def test_no_reference_page_is_stale():
    assert generate.stale_pages() == [], "write them with: make docs"


def test_checking_for_stale_pages_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"], cwd=ROOT, check=False
    )
    assert done.returncode == 0


def test_every_command_is_in_the_reference():
    page = reference("cli.md")
    missing = [path for path, _ in generate.commands() if f"## `{path}`" not in page]
    assert missing == []


def test_every_setting_is_in_the_reference():
    page = reference("settings.md")
    for title, model in generate.TABLES.items():
        _, _, rest = page.partition(f"## `[{title}]`")
        section = rest.partition("\n## ")[0]
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in section


def test_every_table_of_the_settings_is_in_the_reference():
    known = {TomlModel}
    waiting = [*known]
    while waiting:
        found = set(waiting.pop().__subclasses__()) - known
        known |= found
        waiting.extend(found)
    # but for their source, datasets of all kinds are alike
    alike = {AnyDatasetTable, CsvDatasetTable}
    leaves = {each for each in known if each.model_fields} - alike
    assert leaves == set(generate.TABLES.values())


def test_every_event_and_error_is_in_the_reference():
    events, errors = reference("events.md"), reference("errors.md")
    for event in generate.event_classes():
        assert f"Class `{event.__name__}`" in events
    for error in generate.error_classes():
        assert f"| `{error.__name__}` | `{error.code}` |" in errors


def test_every_endpoint_and_problem_is_in_the_reference():
    page = reference("api.md")
    for endpoint in all_endpoints():
        assert f"| `{endpoint.method} {generate.shown_path(endpoint)}` |" in page
    for code in TITLES:
        assert f"| `{code}` |" in page


def test_every_test_that_the_readme_names_exists():
    named = NAMED_TEST.findall((ROOT / "README.md").read_text("utf-8"))
    assert len(named) >= 11
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


def test_every_promise_of_the_readme_names_its_test():
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.partition("## What is guaranteed")[2].partition("\n## ")[0]
    promises = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert promises
    for promise in promises:
        assert NAMED_TEST.search(promise), promise


def test_every_relative_link_resolves():
    for page in files({".md"}):
        for link in LINK.findall(page.read_text("utf-8")):
            if "://" not in link and not link.startswith("#"):
                target = page.parent / link.partition("#")[0]
                assert target.exists(), f"{page.relative_to(ROOT)}: {link}"


def test_every_page_is_reached_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "index.md" or f"]({name})" in index, name


def test_every_decision_says_the_same_things():
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = page.read_text("utf-8")
        for part in ("Status:", "Date:", "## Context", "## Decision"):
            assert part in text, page.name
        assert "## Consequences" in text, page.name


EXAMPLES = {
    "open-charge-map": ["poi"],
    "retailers": ["regions", "retailers"],
    "sandbox": ["poi"],
}


def test_every_example_is_known():
    folders = (ROOT / "examples").glob("*/penstock.toml")
    assert sorted(path.parent.name for path in folders) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_loads(name):
    path = ROOT / "examples" / name / "penstock.toml"
    settings = load(path, {"OCM_API_KEY": "0123456789"})
    assert list(settings.datasets) == EXAMPLES[name]


READERS: dict[str, Callable[..., object]] = {
    "records": read_query,
    "search": read_search,
    "suggest": read_suggest,
    "facets": read_facets,
}


def test_the_sandbox_has_all_that_its_api_is_requested():
    example = ROOT / "examples" / "sandbox" / "penstock.toml"
    poi = load(example, {}).datasets["poi"]
    page = (ROOT / "docs" / "howto" / "query-the-api.md").read_text("utf-8")
    request = set()
    for command in re.findall(r"^curl .*$", page, re.MULTILINE):
        *options, address = shlex.split(command)[1:]
        _, _, path = urlsplit(address).path.partition("/datasets/poi/")
        # what does not fit is refused by an error that says why
        if "-d" in options:
            sent = json.loads(options[options.index("-d") + 1])
            for record in sent if isinstance(sent, list) else [{"id": 1, **sent}]:
                RecordValidator(poi).validate_full({"title": "any", **record}, key=None)
        elif path in READERS:
            READERS[path](poi, parse_qsl(urlsplit(address).query))
            request.add(path)
    assert request == set(READERS)


def test_the_example_of_the_readme_loads_and_is_short(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8").partition("<!-- example -->")[2]
    example = text.partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "penstock.toml"
    path.write_text(example, encoding="utf-8")
    assert list(load(path, {}).datasets) == ["poi"]
    assert len(tomllib.loads(example)) == 2
    assert len([line for line in example.splitlines() if line]) < 15


def test_nothing_names_a_package_index_or_a_home():
    for path in files(TEXTS):
        for number, line in enumerate(
            path.read_text("utf-8", "replace").splitlines(), 1
        ):
            assert not FORBIDDEN.search(line), f"{path.relative_to(ROOT)}:{number}"


def test_the_tutorial_does_what_it_says(tmp_path):
    page = (ROOT / "docs" / "tutorial" / "first-import.md").read_text("utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = "".join(SHELL.findall(page)).replace("8800", port)
    script = script.replace("--records 6000", f"--records 6000 --port {port}")
    # whatever fails, the provider is not left behind
    script = f"set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": places, "LANG": "C.UTF-8", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "Import 1 of poi (full): done, proven complete" in said
    assert "4 shards, 15 pages" in said
    assert "0 inserted, 1 updated, 0 unchanged" in said
    assert "1 deleted" in said
    for line in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for part in line.splitlines():
            assert re.sub(r" in [\d.]+ s", "", part) in re.sub(
                r" in [\d.]+ s", "", said
            )
