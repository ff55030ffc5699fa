"""In which file of which import rows were last seen."""

import json
from collections.abc import Iterable

from penstock.adapters.sqlstore.database import SqlRow
from penstock.domain.lost_files import RowOrigin
from penstock.domain.sharding.parts import MAX_FILE_BYTES

# files are numbered from 1 here; a rank of 0 or 1 has no file
FILE_NUMBER = (
    f"case when _rank > 1 then (_rank + {MAX_FILE_BYTES - 1}) / {MAX_FILE_BYTES} "
    "else 0 end"
)


def read_origins(rows: Iterable[SqlRow]) -> dict[RowOrigin, int]:
    return {
        RowOrigin(row["import_id"], row["file"] - 1 if row["file"] else None): row[
            "rows"
        ]
        for row in rows
    }


def write_origins(origins: Iterable[RowOrigin]) -> str:
    return json.dumps(
        [
            [origin.import_id, 0 if origin.number is None else origin.number + 1]
            for origin in origins
        ]
    )
