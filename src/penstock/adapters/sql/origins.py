"""In which file of which import rows were seen last, as both databases tell it."""

import json
from collections.abc import Iterable

from penstock.adapters.sql.database import Row
from penstock.domain.lost_files import Origin
from penstock.domain.parts import LONGEST_FILE

# files are numbered from 1 here; a rank of 0 or 1 names none
FILE_NUMBER = (
    f"case when _rank > 1 then (_rank + {LONGEST_FILE - 1}) / {LONGEST_FILE} else 0 end"
)


def read_origins(rows: Iterable[Row]) -> dict[Origin, int]:
    return {
        Origin(row["import_id"], row["file"] - 1 if row["file"] else None): row["rows"]
        for row in rows
    }


def write_origins(origins: Iterable[Origin]) -> str:
    return json.dumps(
        [
            [each.import_id, 0 if each.number is None else each.number + 1]
            for each in origins
        ]
    )
