"""Find the servers and programs that tests need, or install them where we may."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# these name servers of the caller's own, which are then used instead of private ones
POSTGRES_URL = "PENSTOCK_TEST_POSTGRES_URL"
REDIS_URL = "PENSTOCK_TEST_REDIS_URL"
RABBIT_URL = "PENSTOCK_TEST_RABBITMQ_URL"

OLDEST_POSTGRES = 15
POSTGRES_PACKAGES = ("postgresql", "postgresql-contrib")
REDIS_PACKAGES = ("redis-server",)
RABBIT_PACKAGES = ("rabbitmq-server",)
NGINX_PACKAGES = ("nginx-light",)
CHROMIUM_PACKAGES = ("chromium",)
PROMETHEUS_PACKAGES = ("prometheus",)
WRK_PACKAGES = ("wrk",)

# where distributions hide the programs that Debian keeps off the PATH
# Debian's program on the PATH refuses users other than its own, and this one not
RABBIT_PROGRAMS = ("usr/lib/rabbitmq/bin/rabbitmq-server",)
POSTGRES_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
# asked by Debian's packages before they start a service
START_POLICY = Path("/usr/sbin/policy-rc.d")
CLUSTER_SETTINGS = Path("/etc/postgresql-common/createcluster.d/penstock-tests.conf")


class ServerMissing(Exception):
    """One sentence that says what to install."""

    def __init__(
        self, server: str, packages: tuple[str, ...], variable: str | None = None
    ) -> None:
        otherwise = f", or name a server of your own in {variable}" if variable else ""
        super().__init__(
            f"the tests need {server}: install it (on Debian: "
            f"apt-get install {' '.join(packages)}){otherwise}"
        )


def provide_postgres() -> Path:
    """Return the folder of its programs."""
    return _find_or_install(find_postgres, POSTGRES_PACKAGES)


def provide_redis() -> Path:
    """Return its program."""
    return _find_or_install(find_redis, REDIS_PACKAGES)


def provide_rabbit() -> Path:
    """Return its program."""
    return _find_or_install(find_rabbit, RABBIT_PACKAGES)


def provide_nginx() -> Path:
    """Return its program."""
    return _find_or_install(find_nginx, NGINX_PACKAGES)


def provide_chromium() -> Path:
    """Return its program."""
    return _find_or_install(find_chromium, CHROMIUM_PACKAGES)


def provide_prometheus() -> Path:
    """Return its program."""
    return _find_or_install(find_prometheus, PROMETHEUS_PACKAGES)


def provide_promtool() -> Path:
    """Return the program that checks rules, which is in the same package."""
    return _find_or_install(find_promtool, PROMETHEUS_PACKAGES)


def provide_wrk() -> Path:
    """Return its program, with which the benchmarks load the API."""
    return _find_or_install(find_wrk, WRK_PACKAGES)


def find_postgres(path: str | None = None, root: Path = Path("/")) -> Path:
    """Return the folder of the newest usable one, on the PATH or under a root."""
    on_path = shutil.which("postgres", path=path)
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in POSTGRES_FOLDERS:
        folders.extend(root.glob(pattern))
    usable = [folder for folder in folders if _has_trigrams(folder)]
    newest = max(usable, key=_version, default=None)
    if newest is None or _version(newest) < OLDEST_POSTGRES:
        server = f"PostgreSQL {OLDEST_POSTGRES} or newer with its contrib modules"
        raise ServerMissing(server, POSTGRES_PACKAGES, POSTGRES_URL)
    return newest


def find_redis(path: str | None = None) -> Path:
    program = shutil.which("redis-server", path=path)
    if program is None:
        raise ServerMissing("redis-server", REDIS_PACKAGES, REDIS_URL)
    return Path(program)


def find_rabbit(path: str | None = None, root: Path = Path("/")) -> Path:
    for place in RABBIT_PROGRAMS:
        if (root / place).exists():
            return root / place
    program = shutil.which("rabbitmq-server", path=path)
    if program is None:
        raise ServerMissing("rabbitmq-server", RABBIT_PACKAGES, RABBIT_URL)
    return Path(program)


def find_nginx(path: str | None = None) -> Path:
    # Debian keeps it where only root looks
    places = f"{path or os.environ.get('PATH', '')}:/usr/sbin"
    program = shutil.which("nginx", path=places)
    if program is None:
        raise ServerMissing("nginx", NGINX_PACKAGES)
    return Path(program)


def find_chromium(path: str | None = None) -> Path:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        program = shutil.which(name, path=path)
        if program is not None:
            return Path(program)
    raise ServerMissing("a browser, Chromium", CHROMIUM_PACKAGES)


def find_prometheus(path: str | None = None) -> Path:
    program = shutil.which("prometheus", path=path)
    if program is None:
        raise ServerMissing("prometheus", PROMETHEUS_PACKAGES)
    return Path(program)


def find_promtool(path: str | None = None) -> Path:
    program = shutil.which("promtool", path=path)
    if program is None:
        raise ServerMissing("promtool", PROMETHEUS_PACKAGES)
    return Path(program)


def find_wrk(path: str | None = None) -> Path:
    program = shutil.which("wrk", path=path)
    if program is None:
        raise ServerMissing("wrk", WRK_PACKAGES)
    return Path(program)


def _version(folder: Path) -> int:
    """Tell the major version: 15 of `postgres (PostgreSQL) 15.18 (Debian …)`."""
    result = _output(folder / "postgres", "--version")
    found = re.search(r"\(PostgreSQL\) (\d+)", result)
    return int(found[1]) if found else 0


def _has_trigrams(folder: Path) -> bool:
    # initdb comes with the server, pg_config also with mere clients
    if not (folder / "initdb").exists() or not (folder / "pg_config").exists():
        return False
    shared = Path(_output(folder / "pg_config", "--sharedir").strip())
    return (shared / "extension" / "pg_trgm.control").exists()


def _output(program: Path, option: str) -> str:
    return subprocess.run(
        [program, option], capture_output=True, check=True, text=True
    ).stdout


def _find_or_install(find: Callable[[], Path], packages: tuple[str, ...]) -> Path:
    try:
        return find()
    except ServerMissing:
        if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
            raise
    # other processes of the same test run may miss it too
    with (Path(tempfile.gettempdir()) / "penstock-install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return find()
        except ServerMissing:
            _install(packages)
            return find()


def _install(packages: tuple[str, ...]) -> None:
    """Try to; whoever looks again afterwards says what is still missing."""
    if packages == POSTGRES_PACKAGES:
        # or the package makes a cluster of its own and starts it
        CLUSTER_SETTINGS.parent.mkdir(parents=True, exist_ok=True)
        CLUSTER_SETTINGS.write_text("create_main_cluster = false\n", "utf-8")
    apt = ("apt-get", "--quiet=2", "--option=DPkg::Lock::Timeout=120")
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*apt, "update"], env=quietly, check=False)
    with _no_service_starts():
        subprocess.run(
            [*apt, "install", "--yes", "--no-install-recommends", *packages],
            env=quietly,
            check=False,
        )


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Let packages start no service of the machine meanwhile: tests start their own."""
    if START_POLICY.exists():
        yield
        return
    START_POLICY.write_text("#!/bin/sh\nexit 101\n", "utf-8")
    START_POLICY.chmod(0o755)
    try:
        yield
    finally:
        START_POLICY.unlink()
