"""dlt on the same file: `PATH DATABASE`, merged by the key into PostgreSQL."""

import csv
import os
import sys
import tempfile
from pathlib import Path

import dlt

CHUNK = 5_000


def import_rows(path, database):
    @dlt.resource(
        name="retailers",
        primary_key="uid",
        write_disposition="merge",
        columns={"points": {"data_type": "bigint"}},
    )
    def retailers():
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = []
            for row in csv.DictReader(file):
                rows.append(row | {"points": int(row["points"])})
                if len(rows) == CHUNK:
                    yield rows
                    rows = []
            yield rows

    # dlt insists on a password, though nobody asks for it
    login = database.replace("postgres@", "postgres:none@")
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        destination=dlt.destinations.postgres(login),
        dataset_name="bench",
    )
    print(pipeline.run(retailers(), loader_file_format="csv"), file=sys.stderr)


if __name__ == "__main__":
    path, database = sys.argv[1:]
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        os.environ["DLT_DATA_DIR"] = folder
        import_rows(path, database)
