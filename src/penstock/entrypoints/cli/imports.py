"""Look at imports, end them, prove them: `imports`, `audit`."""

import dataclasses
from typing import Annotated

import typer

from penstock.domain.job import ImportId
from penstock.entrypoints.cli.plan import Name
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
    stdout,
)
from penstock.entrypoints.reports import report
from penstock.entrypoints.waiting_text import describe_waiting

app = typer.Typer(
    cls=WithDefault, help=default_help("Look at imports, or cancel one.", "imports")
)


@app.command("list")
def show(
    import_id: Annotated[
        int | None,
        id_argument("One import; all without."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show the newest imports, or one with all its figures."""
    with look(config, is_prepared=False) as penstock:
        if import_id is not None:
            known, shards = penstock.stores.imports.get(ImportId(import_id))
            waiting = penstock.explain_waiting(known)
            told = report(known, shards, waiting)
            if as_json:
                print_json(told)
            else:
                text = None if waiting is None else describe_waiting(waiting)
                show_fields({**told, "waiting": text})
            return
        found = [
            (known, shards, penstock.explain_waiting(known))
            for known, shards in penstock.stores.imports.recent(
                dataset=dataset, limit=limit
            )
        ]
    reports = [report(*each) for each in found]
    if as_json:
        print_json({"imports": reports})
        return
    show_table(
        "imports",
        [
            {
                "id": known.id,
                "dataset": known.dataset,
                "mode": known.mode.value,
                "status": known.status.value,
                "shards": f"{shards.done + shards.split}/{shards.total}",
                "pages": known.counts.pages,
                "seen": known.counts.seen,
                "bad": known.counts.quarantined,
                "proven": known.proven,
                "created": known.created_at,
            }
            for known, shards, _ in found
        ],
        empty="There is no import yet. Start one with: penstock run DATASET",
    )
    for known, _, waiting in found:
        if waiting is not None:
            line = f"Import {known.id} waits: {describe_waiting(waiting)}."
            stdout().print(line, markup=False)


@app.command("cancel")
def cancel(
    import_id: Annotated[int, id_argument("The import to end.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """End an import; what was committed stays."""
    with session(config, is_prepared=False) as penstock:
        known = penstock.stores.imports.cancel(
            ImportId(import_id), reason="cancelled by an operator"
        )
    if as_json:
        print_json({"import_id": known.id, "status": known.status})
    else:
        typer.echo(f"Import {known.id} is {known.status}.")


def audit(
    dataset: Name,
    import_id: Annotated[
        int | None,
        id_option("--import", "This import, not the newest."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Recompute the coverage of the newest import; exit 1 if anything is missing."""
    with look(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        wanted = None if import_id is None else ImportId(import_id)
        found = penstock.audit(
            declared, declaration=penstock.declaration(declared), wanted=wanted
        )
    if as_json:
        print_json(
            {
                "import_id": found.audited.id,
                "mode": found.audited.mode,
                "complete": found.complete,
                "shards": found.shards,
                "pages": found.pages,
                "findings": [dataclasses.asdict(each) for each in found.findings],
            }
        )
    else:
        for each in found.findings:
            stdout().print(f"{each.flaw}: {each.shard}: {each.detail}", markup=False)
        verdict = (
            "complete: no gap, no overlap, every end proven"
            if found.complete
            else f"NOT complete: {counted(len(found.findings), 'finding')}"
        )
        typer.echo(
            f"Import {found.audited.id} of {dataset} ({found.audited.mode}) is "
            f"{verdict} ({counted(found.shards, 'shard')}, "
            f"{counted(found.pages, 'page')})."
        )
    if not found.complete:
        raise typer.Exit(1)
