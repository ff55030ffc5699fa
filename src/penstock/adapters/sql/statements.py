"""Load the named SQL that ships with an adapter."""

import re
from collections.abc import Mapping
from importlib import resources

NAMED = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(package: str) -> Mapping[str, str]:
    """Return the statements of all `.sql` files in the folder `sql` of a package."""
    statements: dict[str, str] = {}
    for file in sorted((resources.files(package) / "sql").iterdir(), key=str):
        if file.name.endswith(".sql"):
            for name, text in parse(file.read_text("utf-8")):
                if name in statements:
                    raise ValueError(f"{package}: statement {name!r} stands twice")
                statements[name] = text
    return statements


def parse(text: str) -> list[tuple[str, str]]:
    """Cut a file at its `-- name:` lines."""
    pieces = NAMED.split(text)
    return [
        (name, body.strip())
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    ]
