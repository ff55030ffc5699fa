"""Real data, where it is at hand: PENSTOCK_REAL_DATA names its folder."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    named = os.environ.get("PENSTOCK_REAL_DATA")
    if not named:
        pytest.skip("PENSTOCK_REAL_DATA names no folder with real data")
    return Path(named)
