"""Load the transform functions of datasets."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured
from penstock.settings import Settings

Transform = Callable[[dict[str, Any]], dict[str, Any] | None]


def load_transform(settings: Settings, dataset: Dataset) -> Transform | None:
    """Import the function that a dataset names; penstock.toml's folder is searched."""
    if dataset.transform is None:
        return None
    module_name, _, function = dataset.transform.partition(":")
    folder = str(settings.path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    setting = f"datasets.{dataset.name}.transform"
    try:
        found = getattr(importlib.import_module(module_name), function, None)
    except Exception as error:
        raise Misconfigured(
            f"{setting}: module {module_name!r} cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise Misconfigured(f"{setting}: {module_name!r} has no function {function!r}")
    transform: Transform = found
    return transform
