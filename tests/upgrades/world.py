"""What the datasets of the stored databases are imported from: the same every time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.sandbox import Sandbox, SandboxOptions

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "penstock.toml"
OPTIONS = SandboxOptions(records=400, seed=7, bad=0.03, duplicates=0.0)
SHOPS = 900
# rows whose points are no number, and rows whose key comes again
BAD_EVERY, DOUBLE_EVERY = 50, 90
SECOND_EDITION = 2


@contextmanager
def provider() -> Iterator[Sandbox]:
    with Sandbox(OPTIONS) as sandbox:
        yield sandbox


def environment(sandbox: Sandbox, database: str, *, moved: bool) -> dict[str, str]:
    """Name the database and the provider; `moved`: one address leads nowhere."""
    base = sandbox.base_url
    # another text than the other address: the digest of a declaration has the names of
    # variables in the place of their values
    right = base.replace("127.0.0.1", "localhost")
    return {
        "PRACTICE_DATABASE": database,
        "PRACTICE_URL": base,
        "PRACTICE_MOVED": f"{base}/nowhere" if moved else right,
    }


def write_shops(folder: Path, edition: int) -> None:
    """Write the file of shops; in its second edition a third of the rows differ."""
    lines = ["id,name,points,text"]
    lines += [shop_line(number, edition) for number in range(1, SHOPS + 1)]
    (folder / "shops.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def shop_line(number: int, edition: int) -> str:
    key = number - 1 if number % DOUBLE_EVERY == 0 else number
    points = "many" if number % BAD_EVERY == 0 else str(number % 40)
    name = f"shop {number}" + (" again" if edition > 1 and number % 3 == 0 else "")
    return f'{key},"{name}",{points},{"shelf " * 30}{number}'


def expected_shops(edition: int) -> dict[int, str]:
    """Return the names that an import of this edition leaves, by key."""
    good = [each for each in range(1, SHOPS + 1) if each % BAD_EVERY]
    lines = [shop_line(number, edition).split(",") for number in good]
    return {int(line[0]): line[1].strip('"') for line in lines}
