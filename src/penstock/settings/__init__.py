"""`penstock.toml` as one frozen tree."""

from importlib.resources import files

from penstock.settings.declaration_digest import declaration_digest
from penstock.settings.loader import load
from penstock.settings.model import Settings

# what `penstock init` writes
STARTER = files(__name__).joinpath("starter.toml").read_text(encoding="utf-8")

__all__ = ["STARTER", "Settings", "declaration_digest", "load"]
