"""Functions that users wrote for their datasets."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured
from penstock.settings import Settings

Transform = Callable[[dict[str, Any]], dict[str, Any] | None]


def load_transform(settings: Settings, dataset: Dataset) -> Transform | None:
    """Import the function a dataset names; modules beside penstock.toml are found."""
    if dataset.transform is None:
        return None
    module_name, _, function = dataset.transform.partition(":")
    folder = str(settings.path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    place = f"datasets.{dataset.name}.transform"
    try:
        found = getattr(importlib.import_module(module_name), function, None)
    except Exception as error:
        raise Misconfigured(
            f"{place}: module {module_name!r} cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise Misconfigured(f"{place}: {module_name!r} has no function {function!r}")
    transform: Transform = found
    return transform
