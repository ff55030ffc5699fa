"""Names are the words of the glossary, one for each idea."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def sources(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def retired_words() -> set[str]:
    """Return what the third column of the glossary's tables names."""
    rows = [
        line.split("|")
        for line in GLOSSARY.read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    words = {word.strip() for row in rows for word in row[3].split(",")}
    return words - {"", "retired"}


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield node.lineno, name
            case ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case _:
                pass


def words_of(identifier: str) -> set[str]:
    return {part.lower() for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", identifier)}


def test_the_glossary_retires_words():
    assert {"told", "asked", "kept", "desk", "crew", "staff"} <= retired_words()


@pytest.mark.parametrize(
    ("identifier", "words"),
    [("told_apart", {"told", "apart"}), ("MixedCrew", {"mixed", "crew"})],
)
def test_words_are_cut_at_underscores_and_capitals(identifier, words):
    assert words_of(identifier) == words


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "docs"])
def test_no_identifier_has_a_retired_word(folder):
    retired = retired_words()

    found = [
        f"{path}:{line} {name}"
        for path, tree in sources(folder)
        for line, name in identifiers(tree)
        if words_of(name) & retired
    ]

    assert found == []


def test_no_two_public_classes_share_a_name():
    names = Counter(
        node.name
        for _, tree in sources("src")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [name for name, count in names.items() if count > 1] == []
