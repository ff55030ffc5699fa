"""List jobs, and retry failed ones: `jobs`."""

import dataclasses
from typing import Annotated

import typer

from penstock.domain.formats import shorten
from penstock.domain.jobs import ImportId, Job, JobId, JobKind, JobStatus
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    format_value,
    id_argument,
    id_option,
    log_action,
    open_readonly,
    print_json,
    session,
    show_fields,
    show_table,
    stdout,
)
from penstock.errors import Misconfigured, NotFound
from penstock.ports import JobFilter
from penstock.wiring import Container

app = typer.Typer(
    cls=WithDefault, help=default_help("List jobs, or retry failed ones.", "jobs")
)
MAX_ERROR_LENGTH = 80


@app.command("list")
def show(
    job: Annotated[
        int | None,
        id_argument("Show only this job, with its errors."),
    ] = None,
    status: Annotated[
        JobStatus | None, typer.Option(help="Only jobs in this state.")
    ] = None,
    import_id: Annotated[
        int | None,
        id_option("--import", "Only jobs of this import."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Only jobs of this dataset.")
    ] = None,
    kind: Annotated[
        JobKind | None, typer.Option(help="Only jobs of shards, or only plans.")
    ] = None,
    after: Annotated[int, id_option("--after", "Start after this id.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show jobs ordered by id."""
    job_filter = JobFilter(
        status=status,
        import_id=None if import_id is None else ImportId(import_id),
        dataset=dataset,
        kind=kind,
    )
    with open_readonly(config) as penstock:
        if job is not None:
            show_one(penstock.stores.jobs.get(JobId(job)), as_json=as_json)
            return
        found = penstock.stores.jobs.find(job_filter, after=JobId(after), limit=limit)
    if as_json:
        print_json({"jobs": [*map(dataclasses.asdict, found)]})
        return
    show_table(
        "jobs",
        [
            {
                "id": entry.id,
                "import": entry.import_id,
                "kind": entry.kind.value,
                "shard": entry.shard_key,
                "status": entry.status.value,
                "pages": entry.page_seq,
                "seen": entry.counts.seen,
                "fence": int(entry.fence),
                "attempts": entry.attempts,
                "proof": entry.proof,
                "last_error": last_error(entry),
            }
            for entry in found
        ],
        empty="No job matches.",
    )


def show_one(job: Job, *, as_json: bool) -> None:
    document = dataclasses.asdict(job)
    if as_json:
        print_json(document)
        return
    errors = document.pop("errors")
    # shortened: only workers need all of it
    document["cursor"] = None if job.cursor is None else shorten(job.cursor)
    show_fields(document)
    for error in errors:
        stdout().print(
            f"  {format_value(error['at'])} fence {error['fence']} {error['code']}: "
            f"{error['message']}",
            markup=False,
        )


@app.command("retry")
def retry(
    jobs: Annotated[list[int] | None, id_argument("The failed jobs to retry.")] = None,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Retry all failed jobs of every dataset's newest import."
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Make failed jobs pending again; they resume from their cursors."""
    if bool(jobs) == failed:
        raise Misconfigured("name the jobs: penstock jobs retry ID… or use --failed")
    with session(config) as penstock:
        retried = retry_failed(penstock) if failed else []
        refused: list[JobId] = []
        for job in map(JobId, jobs or []):
            (retried if penstock.retry(job) else refused).append(job)
        for job in [] if failed else retried:
            log_action(penstock, "retryJob", f"jobs/{job}")
        if failed and retried:
            log_action(penstock, "retryJobs", counted(len(retried), "failed job"))
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
            f"{counted(len(retried), 'job')} pending again. Run: penstock worker"
            if retried
            else "No job has failed. Start an import with: penstock run DATASET"
        )


def retry_failed(penstock: Container) -> list[JobId]:
    """Retry the failed jobs of the newest import of every dataset."""
    retried: list[JobId] = []
    for dataset in penstock.settings.datasets:
        for import_, _ in penstock.stores.imports.recent(dataset=dataset, limit=1):
            retried += penstock.retry.all_of(import_.id).jobs
    return retried


def last_error(job: Job) -> str | None:
    """Return the last error of a job, unless the job is done."""
    if not job.errors or job.status is JobStatus.DONE:
        return None
    message = job.errors[-1].message
    return (
        message
        if len(message) <= MAX_ERROR_LENGTH
        else f"{message[:MAX_ERROR_LENGTH]}…"
    )
