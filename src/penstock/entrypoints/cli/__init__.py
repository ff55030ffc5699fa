"""The command line: parsing and presentation, no decisions."""

from penstock.entrypoints.cli.app import main

__all__ = ["main"]
