"""Benchmarks run through, each with so little that its figures say nothing."""

import re

import pytest
from bench.__main__ import BENCHMARKS, NEED_RIVALS

# whether a limit holds is not judged here
RESULT = re.compile(r"^(ok  |FAIL) .+: .*\d", re.MULTILINE)


def run_small(name, capsys):
    BENCHMARKS[name](small=True)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(BENCHMARKS.keys() - NEED_RIVALS))
def test_a_benchmark_prints_its_figures(name, capsys):
    assert RESULT.search(run_small(name, capsys))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NEED_RIVALS))
def test_a_benchmark_beside_rivals_prints_its_figures(name, capsys):
    assert RESULT.search(run_small(name, capsys))


def test_the_benchmarks_that_need_rivals_are_among_all():
    assert BENCHMARKS.keys() >= NEED_RIVALS
