"""List budgets, and reopen stopped ones: `budgets`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from penstock.domain.budget import BudgetState
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    default_help,
    log_action,
    open_readonly,
    print_json,
    session,
    show_table,
)
from penstock.errors import NotFound

app = typer.Typer(
    cls=WithDefault,
    help=default_help("List budgets, or reopen a closed one.", "budgets"),
)


@app.command("list")
def show(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show the state and the remaining allowance of every budget."""
    with open_readonly(config) as penstock:
        rows = [
            describe_budget(penstock.stores.budgets.state(budget))
            for budget in penstock.budgets.values()
        ]
    if as_json:
        print_json({"budgets": rows})
    else:
        show_table("budgets", rows, empty="No budget is declared.")


def describe_budget(state: BudgetState) -> Mapping[str, object]:
    """Describe the state of a budget, as `budgets` and `status` show it."""
    return {
        "name": state.budget.name,
        "state": "stopped"
        if state.stopped
        else "closed"
        if state.closed_for
        else "open",
        "rate": ", ".join(str(allowance.limit) for allowance in state.limits)
        or "no limit",
        "remaining": ", ".join(
            f"{allowance.remaining:,} of {allowance.limit}"
            for allowance in state.limits
        ),
        "taken": state.taken,
        "closed_seconds": None
        if state.closed_for is None
        else round(state.closed_for.total_seconds(), 1),
        "reason": state.stopped or state.closed_reason,
    }


@app.command("open")
def open_budget(
    name: Annotated[str, typer.Argument(help="The budget to open.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Open a budget that the provider or an error has closed."""
    with session(config) as penstock:
        if name not in penstock.budgets:
            existing = ", ".join(penstock.budgets) or "none"
            raise NotFound(f"there is no budget {name!r}; existing: {existing}")
        penstock.stores.budgets.open(name)
        log_action(penstock, "openBudget", f"budgets/{name}")
    if as_json:
        print_json({"opened": name})
    else:
        typer.echo(f"Budget {name} is open.")
