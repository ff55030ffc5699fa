"""Where a command writes: to standard output, or a file that is whole or not there."""

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

# other endings would promise what is not written; that of text keeps a list beside the
# files of a dataset from being taken for one of them
TABLES = frozenset({"", ".csv", ".txt"})
ENDED_BY_SIGTERM = 128 + signal.SIGTERM


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Write to standard output; raises `OSError` once, and not again at exit."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError:
        # what is still held could only fail once more when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def refuse_unwritable(out: Path, option: str) -> None:
    """Refuse a table that could not be written at the end of long work.

    Nor may its name promise something else than CSV; a pipe or a device says nothing.
    """
    target = Path(os.path.realpath(out))
    if target.is_dir():
        raise Misconfigured(f"{option} {out}: is a folder")
    # the place of a pipe or a device is not taken: it is written to itself
    is_kept = target.exists() and not target.is_file()
    is_open = is_kept or target.parent.is_dir()
    if not is_open or not os.access(target if is_kept else target.parent, os.W_OK):
        raise Misconfigured(f"{option} {out}: there is no place to write it to")
    if not is_kept and out.suffix.lower() not in TABLES:
        raise Misconfigured(
            f"{option} {out}: it is written as CSV; the name must end in .csv or .txt"
        )


@contextmanager
def whole_file(out: Path, option: str = "--out") -> Iterator[IO[bytes]]:
    """Write beside a file, and take its place at the end.

    Whoever reads `out` finds what was there before, or all of the new content.
    """
    asked = f"{option} {out}"
    # a link stays, and what it points to is replaced
    target = Path(os.path.realpath(out))
    if target.exists() and not target.is_file():
        # the place of a pipe or a device cannot be taken
        with naming(asked), opened(target, "wb", asked) as file:
            yield file
        return
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    with naming(asked), ended_politely():
        try:
            with opened(beside, "xb", asked) as file:
                yield file
                file.flush()
                if target.exists():
                    # a configuration that only its owner may read stays so
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                # or a power cut could leave the name without the content
                os.fsync(file.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def opened(path: Path, mode: str, asked: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise Misconfigured(f"{asked}: {error.strerror}") from error


@contextmanager
def naming(asked: str) -> Iterator[None]:
    """Say which file an error is about: the system does not while one is written."""
    try:
        yield
    except OSError as error:
        told = error.strerror or str(error)
        raise OSError(error.errno, told, asked) from error


@contextmanager
def ended_politely() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""

    def end(*_: object) -> NoReturn:
        sys.exit(ENDED_BY_SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
