"""What every test shares: readable assertions, and one Hypothesis profile."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.contracts", "tests.builders")

# a busy machine is slow, which is no failure
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")
