"""`penstock.toml` as one frozen tree."""

from importlib.resources import files

from penstock.settings.fingerprint import fingerprint
from penstock.settings.load import load
from penstock.settings.tree import Settings

# what `penstock init` writes
STARTER = files(__name__).joinpath("starter.toml").read_text(encoding="utf-8")

__all__ = ["STARTER", "Settings", "fingerprint", "load"]
