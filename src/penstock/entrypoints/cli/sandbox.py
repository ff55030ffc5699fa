"""Serve a sandbox provider: `sandbox`."""

import threading
from datetime import timedelta
from typing import Annotated

import typer

from penstock.entrypoints.cli.common import AsJson, print_json
from penstock.entrypoints.worker.loop import stop_on_signals
from penstock.errors import Misconfigured
from penstock.sandbox import Sandbox, SandboxOptions, parse_faults


def sandbox(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 8800,
    records: Annotated[
        int, typer.Option(min=0, help="Number of charging points.")
    ] = 20_000,
    rate: Annotated[
        float | None,
        typer.Option(help="Allowed requests per second; default is no limit."),
    ] = None,
    burst: Annotated[int, typer.Option(min=1, help="Allowed burst of requests.")] = 10,
    faults: Annotated[
        str,
        typer.Option(
            help="Faults and their probabilities, such as 500:0.02,reset:0.01."
        ),
    ] = "",
    key: Annotated[str | None, typer.Option(help="The required API key.")] = None,
    latency: Annotated[
        float, typer.Option(min=0, help="Delay of each response in seconds.")
    ] = 0,
    bad: Annotated[
        float, typer.Option(min=0, max=1, help="Share of points that are invalid.")
    ] = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Serve points with few fields.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same points.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Serve generated charging points like Open Charge Map until Ctrl-C."""
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
                typer.echo(
                    f"Serving {records:,} points at {server.url} (press Ctrl-C to stop)"
                )
                typer.echo(f"Request statistics: {server.base_url}/sandbox/stats")
            halt.wait()
    except OSError as error:
        raise Misconfigured(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
