"""Serve the practice provider: `sandbox`."""

import threading
from datetime import timedelta
from typing import Annotated

import typer

from penstock.entrypoints.cli.shared import AsJson, print_json
from penstock.entrypoints.threads import stop_on_signals
from penstock.errors import Misconfigured
from penstock.sandbox import Sandbox, SandboxOptions, parse_faults


def sandbox(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="0 takes a free one.")
    ] = 8800,
    records: Annotated[int, typer.Option(min=0, help="Charging points.")] = 20_000,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second; no limit without.")
    ] = None,
    burst: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 10,
    faults: Annotated[
        str, typer.Option(help="Faults and probabilities: 500:0.02,reset:0.01")
    ] = "",
    key: Annotated[str | None, typer.Option(help="The API key it asks for.")] = None,
    latency: Annotated[float, typer.Option(min=0, help="Seconds an answer takes.")] = 0,
    bad: Annotated[
        float, typer.Option(min=0, max=1, help="Share of invalid points.")
    ] = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Serve points with few fields only.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same points.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Serve made-up charging points in Open Charge Map's shape until Ctrl-C."""
    try:
        options = SandboxOptions(
            records=records,
            rate=rate,
            burst=burst,
            faults=parse_faults(faults) if faults else {},
            key=key,
            latency=timedelta(seconds=latency),
            bad=bad,
            small=small,
            seed=seed,
        )
    except ValueError as error:
        raise Misconfigured(str(error)) from error

    halt = threading.Event()
    try:
        with stop_on_signals(halt), Sandbox(options, port=port) as server:
            if as_json:
                print_json({"url": server.url, "records": records})
            else:
                typer.echo(f"Serving {records:,} points at {server.url} (Ctrl-C stops)")
                typer.echo(f"What it was asked: {server.base_url}/sandbox/stats")
            halt.wait()
    except OSError as error:
        raise Misconfigured(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
