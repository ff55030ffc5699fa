"""What tests and benchmarks install is locked by its hashes, whatever the index."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPESCRIPT = ROOT / "tests/clients/typescript"
LOCKED = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.stem)
def test_packages_of_python_have_hashes_and_no_address(path: Path):
    text = path.read_text("utf-8")

    packages = re.findall(r"^[a-z].*(?:\n .*)+", text, re.MULTILINE)
    assert packages
    for package in packages:
        assert re.match(r"\S+==\S+", package), package
        assert " --hash=sha256:" in package, package
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)


def test_packages_of_typescript_have_hashes_and_no_address():
    text = (TYPESCRIPT / "package-lock.json").read_text("utf-8")
    described = json.loads((TYPESCRIPT / "package.json").read_text("utf-8"))

    root, *packages = json.loads(text)["packages"].values()
    assert root["devDependencies"] == described["devDependencies"]
    for version in described["devDependencies"].values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert packages
    for package in packages:
        assert package["integrity"].startswith("sha512-")
    assert "://" not in text
