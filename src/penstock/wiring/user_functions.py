"""Load the functions that settings name as `module:function`."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured
from penstock.settings import Settings

Transform = Callable[[dict[str, Any]], dict[str, Any] | None]


def load_transform(settings: Settings, dataset: Dataset) -> Transform | None:
    """Import the function that a dataset names."""
    if dataset.transform is None:
        return None
    setting = f"datasets.{dataset.name}.transform"
    return load_function(settings, dataset.transform, setting=setting)


def load_function(
    settings: Settings, path: str, *, setting: str
) -> Callable[[dict[str, Any]], Any]:
    """Import a function; penstock.toml's folder is searched.

    Raises `Misconfigured`.
    """
    module_name, _, function = path.partition(":")
    folder = str(settings.path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module_name), function, None)
    except Exception as error:
        raise Misconfigured(
            f"{setting}: module {module_name!r} cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise Misconfigured(f"{setting}: {module_name!r} has no function {function!r}")
    loaded: Callable[[dict[str, Any]], Any] = found
    return loaded
