"""Serve the HTTP API: `serve`."""

import ipaddress
import sys
from typing import Annotated

import typer
import uvicorn

from penstock.entrypoints.api.app import build
from penstock.entrypoints.cli.shared import DEFAULT_CONFIG, Config, session
from penstock.errors import Misconfigured
from penstock.wiring import logging_emit, served, shared_answers


def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="0 takes a free one.")
    ] = 8000,
    threads: Annotated[
        int, typer.Option(min=1, max=64, help="Questions to the database at a time.")
    ] = 8,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Serve the HTTP API until SIGTERM: finish what is under way, then stop."""
    with (
        session(
            config,
            lambda settings: logging_emit(
                settings, as_json=not sys.stderr.isatty(), verbose=False
            ),
            threads=threads,
        ) as penstock,
        served(penstock.settings, threads=threads) as clients,
        shared_answers(penstock.settings) as shared,
    ):
        if getattr(penstock.settings, "auth", None) is None and not is_loopback(host):
            raise Misconfigured(
                f"--host {host}: without [auth] only this machine may ask; "
                "declare [auth] in penstock.toml, or listen at 127.0.0.1"
            )
        app = build(penstock, clients, threads=threads, shared=shared)
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
