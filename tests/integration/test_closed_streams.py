"""Commands whose standard streams were closed, as some supervisors start them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_streams_runs(tmp_path, closed):
    (tmp_path / "poi.csv").write_text("id,name\n1,a\n2,b\n", encoding="utf-8")
    commands = ("init --from poi.csv", "run poi", "export poi --out rows.csv")

    for command in commands:
        shell = f'"{sys.executable}" -m penstock {command} {closed}'
        done = subprocess.run(
            ["sh", "-c", shell], check=False, cwd=tmp_path, capture_output=True
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)

    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
