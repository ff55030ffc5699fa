"""Servers in temporary folders, on loopback ports that nobody else uses."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlencode
from urllib.request import urlopen

from typing_extensions import override

from tests.services import keeper
from tests.services.find import (
    provide_nginx,
    provide_postgres,
    provide_prometheus,
    provide_rabbit,
    provide_redis,
)

# below what the kernel hands out to clients, so that a server which is down for a
# moment finds its port free when it comes back
PORTS = range(15_000, 30_000)
LONGEST_START = 60
STOP_SIGNALS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
StopMode = Literal["smart", "fast", "immediate"]

POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # tests that provoke deadlocks should not wait for them
    "deadlock_timeout": "200ms",
}


class ServerFailed(Exception):
    """It did not start; its message is the end of the server's log."""


class PrivateServer(ABC):
    """A server of our own: runs inside its context, and may be restarted there."""

    # what it is to receive when its owner is gone
    last_signal: ClassVar[signal.Signals]

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        self._log = self.folder / "log"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, again on the same port, and wait until it answers."""
        self._keep(self._command())
        self._wait_until_ready()

    def close(self) -> None:
        """End it, if it still runs, and forget all that it knew."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._wait_until_gone()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _keep(self, command: Sequence[str | Path]) -> None:
        assert self._keeper is None, "it runs already"
        with self._log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    # without the site packages it starts in no time
                    *(sys.executable, "-I", "-S", keeper.__file__),
                    *(str(self.last_signal.value), self.folder, *command),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for the tests, which need their servers to clean up
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as stream:
            self._pid = int(stream.readline())

    def _end_by(self, number: signal.Signals) -> None:
        """Send the server a signal, and wait until it is gone."""
        assert self._keeper is not None, "it does not run"
        os.kill(self._pid, number)
        self._wait_until_gone()

    def _wait_until_gone(self) -> int:
        """Return how the kept process ended."""
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        code = self._keeper.wait()
        self._keeper.stdin.close()
        self._keeper = None
        return code

    def _wait_until_ready(self) -> None:
        assert self._keeper is not None
        deadline = time.monotonic() + LONGEST_START
        while not self._is_ready():
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(self._log.read_text("utf-8", "replace")[-2000:])
            time.sleep(0.02)


class PrivatePostgres(PrivateServer):
    """Committed data outlives its process; without fsync not the whole machine."""

    last_signal = signal.SIGQUIT

    def __init__(self, *, fsync: bool = False, **settings: str) -> None:
        self._programs = provide_postgres()
        super().__init__()
        durability = {} if fsync else {"fsync": "off", "full_page_writes": "off"}
        self._settings = {
            **POSTGRES_SETTINGS,
            **durability,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            **settings,
        }

    @property
    @override
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @override
    def start(self) -> None:
        if not self._data.exists():
            self._create_cluster()
        super().start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop it as pg_ctl does; immediate is a crash, recovered from at the start."""
        self._end_by(STOP_SIGNALS[mode])

    def restart(self, mode: StopMode = "immediate") -> None:
        self.stop(mode)
        self.start()

    def copy_data(self, name: str = "copy") -> None:
        """Copy all that a server has which does not run."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        subprocess.run(["cp", "-a", self._data, self.folder / name], check=True)

    def put_data_back(self, name: str = "copy") -> None:
        """Give a server that does not run what it had when it was copied."""
        shutil.rmtree(self._data)
        subprocess.run(["cp", "-a", self.folder / name, self._data], check=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _create_cluster(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        locale = ("--encoding=UTF8", "--locale=C.UTF-8")
        access = ("--username=postgres", "--auth=trust")
        self._keep(
            self._unprivileged(
                "initdb", "-D", self._data, "--no-sync", *access, *locale
            )
        )
        if self._wait_until_gone() != 0:
            raise ServerFailed(self._log.read_text("utf-8", "replace")[-2000:])

    @override
    def _command(self) -> Sequence[str | Path]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return self._unprivileged("postgres", "-D", self._data, *settings)

    @override
    def _is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _unprivileged(self, program: str, *arguments: str | Path) -> list[str | Path]:
        command = [self._programs / program, *arguments]
        if os.geteuid() != 0:
            return command
        # PostgreSQL refuses to run as root; setpriv becomes the program it starts, so
        # that the process id stays
        identity = ("--reuid=postgres", "--regid=postgres", "--clear-groups")
        return ["setpriv", *identity, *command]


class PrivateStandby(PrivatePostgres):
    """A replica that follows another private server."""

    def __init__(self, primary: PrivatePostgres, **settings: str) -> None:
        super().__init__(fsync=False, **settings)
        self._primary = primary

    @override
    def _create_cluster(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        copy = ("--pgdata", self._data, "--write-recovery-conf", "--no-sync")
        source = ("--dbname", self._primary.url, "--checkpoint=fast")
        self._keep(self._unprivileged("pg_basebackup", *copy, *source))
        if self._wait_until_gone() != 0:
            raise ServerFailed(self._log.read_text("utf-8", "replace")[-2000:])


class PrivateRedis(PrivateServer):
    """It keeps everything in memory only: whoever kills it loses all."""

    last_signal = signal.SIGKILL

    def __init__(self) -> None:
        self._program = provide_redis()
        super().__init__()

    @property
    @override
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        self._end_by(signal.SIGKILL)

    def stop(self) -> None:
        self._end_by(signal.SIGTERM)

    @override
    def _command(self) -> Sequence[str | Path]:
        return [
            *(self._program, "--port", str(self.port), "--bind", "127.0.0.1"),
            # one for each process of a test run
            *("--databases", "256"),
            *("--save", "", "--appendonly", "no", "--dir", self.folder),
        ]

    @override
    def _is_ready(self) -> bool:
        import redis

        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


class PrivateEpmd(PrivateServer):
    """Knows the Erlang nodes of one private RabbitMQ, which would leave it behind."""

    last_signal = signal.SIGKILL

    @property
    @override
    def url(self) -> str:
        return f"epmd://127.0.0.1:{self.port}"

    @override
    def _command(self) -> Sequence[str | Path]:
        return ["epmd", "-address", "127.0.0.1", "-port", str(self.port)]

    @override
    def _is_ready(self) -> bool:
        return is_open(self.port)


class PrivateRabbit(PrivateServer):
    """A node of its own, which no other on this machine knows."""

    last_signal = signal.SIGKILL

    def __init__(self) -> None:
        self._program = provide_rabbit()
        super().__init__()
        self._epmd = PrivateEpmd()
        self.password = f"canary-{uuid.uuid4().hex}"
        (self.folder / "rabbitmq.conf").write_text(
            f"default_user = penstock-tests\ndefault_pass = {self.password}\n", "utf-8"
        )

    @property
    @override
    def url(self) -> str:
        return f"amqp://penstock-tests:{self.password}@127.0.0.1:{self.port}//"

    @override
    def start(self) -> None:
        self._epmd.start()
        super().start()

    @override
    def close(self) -> None:
        super().close()
        self._epmd.close()

    @override
    def _command(self) -> Sequence[str | Path]:
        environ: dict[str, object] = {
            # of the cookie
            "HOME": self.folder,
            "ERL_EPMD_PORT": self._epmd.port,
            "RABBITMQ_NODENAME": f"penstock-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_MNESIA_BASE": self.folder / "data",
            "RABBITMQ_LOG_BASE": self.folder,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.folder / "plugins",
            "RABBITMQ_PID_FILE": self.folder / "pid",
            # nothing of the machine's own server
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": self.folder / "rabbitmq",
            # the shell that starts it becomes it, so that the process id stays
            "RUNNING_UNDER_SYSTEMD": "true",
            # one core, and no busy waiting, which is a load for all other tests
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none "
                "-kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }
        settings = [f"{name}={value}" for name, value in environ.items()]
        return ["env", *settings, self._program]

    @override
    def _is_ready(self) -> bool:
        import amqp

        with contextlib.suppress(OSError, amqp.AMQPError):
            line = amqp.Connection(
                f"127.0.0.1:{self.port}",
                userid="penstock-tests",
                password=self.password,
                connect_timeout=2,
            )
            line.connect()
            line.close()
            return True
        return False


NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/log warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream api {{
        {servers}
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://api;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_connect_timeout 1s;
            proxy_read_timeout 20s;
            proxy_next_upstream error timeout http_503;
            error_page 502 504 = @away;
        }}
        location @away {{
            default_type application/problem+json;
            add_header Retry-After 1 always;
            return 503 '{{"status": 503, "code": "unavailable"}}';
        }}
    }}
}}
"""


class PrivateNginx(PrivateServer):
    """A load balancer in front of some ports."""

    last_signal = signal.SIGTERM

    def __init__(self, *ports: int) -> None:
        self._program = provide_nginx()
        super().__init__()
        servers = "\n        ".join(
            f"server 127.0.0.1:{port} max_fails=1 fail_timeout=1s;" for port in ports
        )
        (self.folder / "nginx.conf").write_text(
            NGINX.format(folder=self.folder, port=self.port, servers=servers), "utf-8"
        )

    @property
    @override
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @override
    def _command(self) -> Sequence[str | Path]:
        return [self._program, "-c", self.folder / "nginx.conf"]

    @override
    def _is_ready(self) -> bool:
        return is_open(self.port)


PROMETHEUS = """\
global:
  scrape_interval: 500ms
  scrape_timeout: 500ms
  evaluation_interval: 1s
rule_files:
  - {rules}
scrape_configs:
"""
PROMETHEUS_JOB = """\
  - job_name: {name}
    static_configs:
      - targets: ["{target}"]
"""


class PrivatePrometheus(PrivateServer):
    """Scrapes some targets, by the names of their jobs, twice a second."""

    last_signal = signal.SIGTERM

    def __init__(self, rules: Path, targets: Mapping[str, str]) -> None:
        self._program = provide_prometheus()
        super().__init__()
        jobs = "".join(
            PROMETHEUS_JOB.format(name=name, target=target)
            for name, target in targets.items()
        )
        (self.folder / "prometheus.yml").write_text(
            PROMETHEUS.format(rules=rules) + jobs, "utf-8"
        )

    @property
    @override
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @override
    def _command(self) -> Sequence[str | Path]:
        return [
            self._program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    @override
    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return get(f"{self.url}/-/ready").startswith(b"Prometheus")
        return False

    def query(self, path: str, **parameters: str) -> Any:
        """Return the data of a response, which has to be a success."""
        document = json.loads(get(f"{self.url}/api/v1/{path}?{urlencode(parameters)}"))
        assert document["status"] == "success", document
        return document["data"]


def get(url: str) -> bytes:
    with urlopen(url, timeout=10) as response:
        body: bytes = response.read()
        return body


def is_open(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
