"""Output of a command: standard output, or a file that is written atomically."""

import os
import secrets
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from penstock.errors import Misconfigured

# extensions of a CSV report; .txt keeps a report beside the files of a dataset from
# matching their pattern
REPORT_EXTENSIONS = frozenset({"", ".csv", ".txt"})
EXIT_CODE_SIGTERM = 128 + signal.SIGTERM


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Write to standard output; raises `OSError` once, and not again at exit."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError:
        # what is still buffered would only fail again when Python exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def refuse_unwritable(out: Path, option: str) -> None:
    """Refuse a CSV report that could not be written at the end of an import.

    Names of other formats are refused too, except for pipes and devices.
    """
    target = Path(os.path.realpath(out))
    if target.is_dir():
        raise Misconfigured(f"{option} {out}: is a folder")
    # a pipe or a device is written to directly, not replaced
    is_special = target.exists() and not target.is_file()
    written_to = target if is_special else target.parent
    if not (is_special or target.parent.is_dir()) or not os.access(written_to, os.W_OK):
        raise Misconfigured(f"{option} {out}: cannot be written there")
    if not is_special and out.suffix.lower() not in REPORT_EXTENSIONS:
        raise Misconfigured(
            f"{option} {out}: it is written as CSV; the name must end in .csv or .txt"
        )


@contextmanager
def atomic_file(out: Path, option: str = "--out") -> Iterator[IO[bytes]]:
    """Write a temporary file, and rename it to `out` at the end.

    Readers of `out` see the old content, or all of the new content.
    """
    name = f"{option} {out}"
    # a symbolic link stays; its target is replaced
    target = Path(os.path.realpath(out))
    if target.exists() and not target.is_file():
        # a pipe or a device cannot be replaced
        with name_file_in_errors(name), open_output(target, "wb", name) as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    with name_file_in_errors(name), exit_on_sigterm():
        try:
            with open_output(temporary, "xb", name) as file:
                yield file
                file.flush()
                if target.exists():
                    # keep the mode, as of a configuration only its owner may read
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                # else a power cut could leave the name without the content
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def open_output(path: Path, mode: str, name: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise Misconfigured(f"{name}: {error.strerror}") from error


@contextmanager
def name_file_in_errors(name: str) -> Iterator[None]:
    """Add the file name to errors: the system omits it while a file is written."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), name) from error


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise `SystemExit`, so that it cleans up as Ctrl-C does."""

    def handle(*_: object) -> NoReturn:
        sys.exit(EXIT_CODE_SIGTERM)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
