"""List, cancel and audit imports: `imports`, `audit`."""

import dataclasses
from typing import Annotated

import typer

from penstock.domain.jobs import ImportId
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
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
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.import_report import report
from penstock.entrypoints.waiting_text import describe_waiting

app = typer.Typer(
    cls=WithDefault, help=default_help("List imports, or cancel one.", "imports")
)


@app.command("list")
def show(
    import_id: Annotated[
        int | None,
        id_argument("Show only this import, with all its figures."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Only imports of this dataset.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show the newest imports, or one with all its figures."""
    with open_readonly(config, is_prepared=False) as penstock:
        if import_id is not None:
            import_, shards = penstock.stores.imports.get(ImportId(import_id))
            waiting = penstock.explain_waiting(import_)
            document = report(import_, shards, waiting)
            if as_json:
                print_json(document)
            else:
                text = None if waiting is None else describe_waiting(waiting)
                show_fields({**document, "waiting": text})
            return
        imports = [
            (import_, shards, penstock.explain_waiting(import_))
            for import_, shards in penstock.stores.imports.recent(
                dataset=dataset, limit=limit
            )
        ]
    if as_json:
        print_json({"imports": [report(*entry) for entry in imports]})
        return
    show_table(
        "imports",
        [
            {
                "id": import_.id,
                "dataset": import_.dataset,
                "mode": import_.mode.value,
                "status": import_.status.value,
                "shards": f"{shards.done + shards.split}/{shards.total}",
                "pages": import_.counts.pages,
                "seen": import_.counts.seen,
                "bad": import_.counts.quarantined,
                "proven": import_.proven,
                "created": import_.created_at,
            }
            for import_, shards, _ in imports
        ],
        empty="There are no imports. Start one with: penstock run DATASET",
    )
    for import_, _, waiting in imports:
        if waiting is not None:
            line = f"Import {import_.id} is waiting: {describe_waiting(waiting)}."
            stdout().print(line, markup=False)


@app.command("cancel")
def cancel(
    import_id: Annotated[int, id_argument("The import to cancel.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Cancel an import, or give a failed one up; committed pages stay."""
    with session(config, is_prepared=False) as penstock:
        import_ = penstock.stores.imports.cancel(
            ImportId(import_id), reason="cancelled by an operator"
        )
        log_action(penstock, "cancelImport", f"imports/{import_id}")
    if as_json:
        print_json({"import_id": import_.id, "status": import_.status})
    else:
        typer.echo(f"Import {import_.id}: {import_.status}.")


def audit(
    dataset: Name,
    import_id: Annotated[
        int | None,
        id_option("--import", "Audit this import instead of the newest."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Recompute the coverage of an import; exit 1 if anything is missing."""
    with open_readonly(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        wanted = None if import_id is None else ImportId(import_id)
        result = penstock.audit(
            declared, declaration=penstock.declaration(declared), wanted=wanted
        )
    if as_json:
        print_json(
            {
                "import_id": result.audited.id,
                "mode": result.audited.mode,
                "complete": result.complete,
                "shards": result.shards,
                "pages": result.pages,
                "findings": [*map(dataclasses.asdict, result.findings)],
            }
        )
    else:
        for finding in result.findings:
            line = f"{finding.flaw}: {finding.shard}: {finding.detail}"
            stdout().print(line, markup=False)
        verdict = (
            "complete: no gap, no overlap, every end proven"
            if result.complete
            else f"NOT complete: {counted(len(result.findings), 'finding')}"
        )
        typer.echo(
            f"Import {result.audited.id} of {dataset} ({result.audited.mode}) is "
            f"{verdict} ({counted(result.shards, 'shard')}, "
            f"{counted(result.pages, 'page')})."
        )
    if not result.complete:
        raise typer.Exit(1)
