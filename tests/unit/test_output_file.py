"""A file that a command writes is whole, or as it was before."""

import os
import re
import signal
import stat
import threading
from pathlib import Path

import pytest

import penstock
from penstock.entrypoints.cli.output.output_file import atomic_file, refuse_unwritable
from penstock.errors import Misconfigured


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"old")
    return path


@pytest.fixture
def interruptible():
    """Python as a terminal starts it: in the background, interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_new_content_is_seen_when_it_is_whole(out):
    with atomic_file(out) as file:
        file.write(b"new")
        file.flush()
        during = out.read_bytes()

    assert during == b"old"
    assert out.read_bytes() == b"new"
    assert names(out.parent) == ["rows.csv"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_what_was_there(out, number):
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        be_ended_in(out, number)

    assert out.read_bytes() == b"old"
    assert names(out.parent) == ["rows.csv"]


def be_ended_in(out, number):
    with atomic_file(out) as file:
        file.write(b"new")
        os.kill(os.getpid(), number)


def test_an_error_names_the_file_and_leaves_what_was_there(out):
    full = OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device: '--out"):
        fail_in(out, full)

    assert out.read_bytes() == b"old"
    assert names(out.parent) == ["rows.csv"]


def fail_in(out, error):
    with atomic_file(out) as file:
        file.write(b"new")
        raise error


def test_a_link_stays_and_its_file_is_replaced(out):
    link = out.with_name("link.csv")
    link.symlink_to(out)

    with atomic_file(link) as file:
        file.write(b"new")

    assert link.is_symlink()
    assert out.read_bytes() == b"new"


def test_a_pipe_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()

    with atomic_file(pipe) as file:
        file.write(b"new")
    reader.join()

    assert read == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_new_file_may_be_read_by_whom_the_host_says(tmp_path):
    beside, out = tmp_path / "beside", tmp_path / "out"
    beside.touch()

    with atomic_file(out):
        pass

    assert out.stat().st_mode == beside.stat().st_mode


@pytest.mark.parametrize("name", ["no/such/folder/rows.csv", "."])
def test_a_place_that_cannot_be_written_is_reported(tmp_path, name):
    with (
        pytest.raises(Misconfigured, match=r"--out .*: (No such file|Is a directory)"),
        atomic_file(tmp_path / name),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize("name", [".", "no/such/folder/rows.csv", "rows.csv/more.csv"])
def test_what_could_not_be_written_is_refused_before_the_work(out, name):
    with pytest.raises(Misconfigured, match="--errors"):
        refuse_unwritable(out.parent / name, "--errors")


@pytest.mark.parametrize("name", ["bad.xlsx", "bad.csv.gz", "bad.jsonl"])
def test_a_name_that_promises_another_form_is_refused(out, name):
    with pytest.raises(Misconfigured, match=f"--errors .*{name}: it is written as CSV"):
        refuse_unwritable(out.parent / name, "--errors")


@pytest.mark.parametrize("name", ["rows.csv", "new.CSV", "bad.txt", "bad", "/dev/null"])
def test_what_can_be_written_is_not_refused(out, name):
    refuse_unwritable(out.parent / name, "--errors")

    assert out.read_bytes() == b"old"


def test_a_file_keeps_the_rights_that_it_had(out):
    out.chmod(0o600)

    with atomic_file(out) as file:
        file.write(b"new")

    assert stat.S_IMODE(out.stat().st_mode) == 0o600


# what no user ever sees half written: a temporary folder, a draft that is renamed, a
# pipe, memory that processes share, /dev/null for an output that is closed; all
# others write through `whole_file`
OTHER_WRITERS = {
    *("demo.py", "multiprocess.py", "subprocesses.py", "accept_balancing.py", "app.py"),
    *("preview.py", "previews.py", "demo_serve.py"),
}


def test_no_command_writes_a_file_in_any_other_way():
    writes = re.compile(r"\.write_(text|bytes)\(|open\([^)]*[\"'][wax]b?\+?[\"']")
    sources = Path(penstock.__file__).parent.rglob("*.py")

    writers = {each.name for each in sources if writes.search(each.read_text("utf-8"))}

    assert writers == OTHER_WRITERS
