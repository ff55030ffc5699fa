"""Look at jobs, and give failed ones another chance: `jobs`."""

import dataclasses
from typing import Annotated

import typer

from penstock.domain.job import ImportId, Job, JobId, JobStatus
from penstock.domain.text import shorten
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    id_argument,
    id_option,
    look,
    print_json,
    session,
    show_fields,
    show_table,
    shown,
    stdout,
)
from penstock.errors import Misconfigured, NotFound
from penstock.ports import JobFilter
from penstock.wiring import Penstock

app = typer.Typer(
    cls=WithDefault, help=default_help("Look at jobs, or retry failed ones.", "jobs")
)
LONGEST_ERROR = 80


@app.command("list")
def show(
    job: Annotated[
        int | None,
        id_argument("One job, with its errors."),
    ] = None,
    status: Annotated[
        JobStatus | None, typer.Option(help="Only in this state.")
    ] = None,
    import_id: Annotated[
        int | None,
        id_option("--import", "Only of this import."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.")] = None,
    after: Annotated[int, id_option("--after", "Begin after this id.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show jobs in the order of their ids."""
    wanted = JobFilter(
        status=status,
        import_id=None if import_id is None else ImportId(import_id),
        dataset=dataset,
    )
    with look(config) as penstock:
        if job is not None:
            show_one(penstock.stores.jobs.get(JobId(job)), as_json=as_json)
            return
        found = penstock.stores.jobs.find(wanted, after=JobId(after), limit=limit)
    if as_json:
        print_json({"jobs": [dataclasses.asdict(each) for each in found]})
        return
    show_table(
        "jobs",
        [
            {
                "id": each.id,
                "import": each.import_id,
                "shard": each.shard_key,
                "status": each.status.value,
                "pages": each.page_seq,
                "seen": each.counts.seen,
                "fence": int(each.fence),
                "attempts": each.attempts,
                "proof": each.proof,
                "last_error": last_error(each),
            }
            for each in found
        ],
        empty="No job matches.",
    )


def show_one(job: Job, *, as_json: bool) -> None:
    told = dataclasses.asdict(job)
    if as_json:
        print_json(told)
        return
    errors = told.pop("errors")
    # what a worker goes on from, not what an operator reads
    told["cursor"] = None if job.cursor is None else shorten(job.cursor)
    show_fields(told)
    for each in errors:
        stdout().print(
            f"  {shown(each['at'])} fence {each['fence']} {each['code']}: "
            f"{each['message']}",
            markup=False,
        )


@app.command("retry")
def retry(
    jobs: Annotated[list[int] | None, id_argument("The failed jobs.")] = None,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Every failed job of each dataset's newest import."
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Make failed jobs pending again; they go on from their cursors."""
    if bool(jobs) == failed:
        raise Misconfigured("say which jobs: penstock jobs retry ID… or --failed")
    with session(config) as penstock:
        retried = retry_failed(penstock) if failed else []
        refused: list[JobId] = []
        for job in map(JobId, jobs or []):
            (retried if penstock.retry(job) else refused).append(job)
    if refused:
        raise NotFound(
            f"not failed, so not retried: {', '.join(map(str, refused))} "
            f"({counted(len(retried), 'other')} pending again); "
            "see: penstock jobs --status failed"
        )
    if as_json:
        print_json({"retried": retried})
    else:
        typer.echo(
            f"{counted(len(retried), 'job')} pending again. Work with: penstock worker"
            if retried
            else "No job has failed. Start an import with: penstock run DATASET"
        )


def retry_failed(penstock: Penstock) -> list[JobId]:
    """Retry the failed jobs of the newest import of every dataset."""
    retried: list[JobId] = []
    for dataset in penstock.settings.datasets:
        for known, _ in penstock.stores.imports.recent(dataset=dataset, limit=1):
            retried += penstock.retry.all_of(known.id).jobs
    return retried


def last_error(job: Job) -> str | None:
    """Return the error that matters; a job that is done has overcome its own."""
    if not job.errors or job.status is JobStatus.DONE:
        return None
    message = job.errors[-1].message
    return message if len(message) <= LONGEST_ERROR else f"{message[:LONGEST_ERROR]}…"
