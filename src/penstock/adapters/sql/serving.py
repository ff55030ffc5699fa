"""What an API reads and changes of one database, behind its ports."""

from collections.abc import Callable

from penstock.adapters.sql.database import Database
from penstock.adapters.sql.edits import SqlEdits
from penstock.adapters.sql.reads import SqlReads
from penstock.adapters.sql.searching import SqlSearch
from penstock.ports.serving import Served, Trouble


def served_by(
    database: Database,
    *,
    primary: Database | None = None,
    on_news: Callable[[], None] | None = None,
    on_lost: Callable[[], None] = lambda: None,
    trouble: Trouble = lambda: None,
) -> Served:
    """Serve a database; where it reads from replicas, its primary is named."""
    return Served(
        reads=SqlReads(database, primary=primary, on_news=on_news, on_lost=on_lost),
        edits=SqlEdits(database),
        search=SqlSearch(database),
        trouble=trouble,
    )
