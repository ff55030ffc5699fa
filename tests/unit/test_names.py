"""Names are the words of the glossary, one for each idea, and comments name what is."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# what comments name that is not in our code: members of tokens, functions and options
# of the standard library, and examples of names that are made of others
ELSEWHERE = {"jku", "x5u", "x5c", "escapechar", "shield"}
EXAMPLES = {"charging_points", "listPoi", "page_committed", "variables"}
# a name, or several with dots, called or not
QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")
# a view of every database, renamed by whoever changes what it shows
STORED = {"penstock_import_told"}
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


def scripts(folder: str) -> Iterator[Path]:
    """Yield SQL and Lua; migrations stay as databases have applied them."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".sql", ".lua"} and path.parent.name != "migrations":
            yield path


def names_in_script(path: Path) -> set[str]:
    """Return its identifiers, the names of statements and what strings consist of."""
    text = path.read_text("utf-8")
    statements = re.findall(r"^-- name: (\w+)", text, re.MULTILINE)
    code = re.sub(r"--.*", "", text)
    return {path.stem, *statements, *re.findall(r"[A-Za-z_]\w*", code)}


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


def test_no_script_or_statement_has_a_retired_word():
    retired = retired_words()

    found = [
        f"{path.relative_to(ROOT)} {name}"
        for path in scripts("src")
        for name in sorted(names_in_script(path) - STORED)
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


def is_docstring(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.STRING and token.string.lstrip("rR").startswith('"""')


def names_in_code(folder: str) -> set[str]:
    """Return the identifiers, the words of short strings, and the modules."""
    found = set().union(*map(names_in_script, scripts(folder)))
    for path in (ROOT / folder).rglob("*.py"):
        found.add(path.stem)
        for token in tokens(path):
            if token.type != tokenize.COMMENT and not is_docstring(token):
                found |= set(re.findall(r"[A-Za-z_]\w*", token.string))
    return found


def tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)


def names_in_comments(folder: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for token in tokens(path):
            if token.type == tokenize.COMMENT or is_docstring(token):
                place = f"{path.relative_to(ROOT)}:{token.start[0]}"
                yield from ((place, name) for name in QUOTED.findall(token.string))
    for path in scripts(folder):
        comments = re.findall(r"--.*", path.read_text("utf-8"))
        for name in QUOTED.findall("\n".join(comments)):
            yield str(path.relative_to(ROOT)), name


def test_what_comments_name_exists():
    existing = names_in_code("src") | ELSEWHERE | EXAMPLES

    found = [
        f"{place} {name}"
        for place, name in names_in_comments("src")
        if not existing.issuperset(name.split("."))
    ]

    assert found == []
