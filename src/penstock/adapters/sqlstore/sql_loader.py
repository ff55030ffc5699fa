"""Load the named SQL statements of an adapter."""

import re
from collections.abc import Mapping
from importlib import resources

STATEMENT_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_statements(package: str) -> Mapping[str, str]:
    """Return the statements of all `.sql` files in the folder `sql` of a package."""
    statements: dict[str, str] = {}
    for file in sorted((resources.files(package) / "sql").iterdir(), key=str):
        if file.name.endswith(".sql"):
            for name, text in parse_statements(file.read_text("utf-8")):
                if name in statements:
                    raise ValueError(f"{package}: statement {name!r} is defined twice")
                statements[name] = text
    return statements


def parse_statements(text: str) -> list[tuple[str, str]]:
    """Split a file at its `-- name:` lines."""
    parts = STATEMENT_NAME.split(text)
    return [
        (name, body.strip())
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    ]
