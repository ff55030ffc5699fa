"""dlt on the same pages: `URL DATABASE RECORDS`, merged by the key into PostgreSQL."""

import os
import sys
import tempfile

import dlt
from dlt.sources.helpers import requests

PAGE = 1000


def import_points(url, database, records):
    @dlt.resource(
        name="points",
        primary_key="id",
        write_disposition="merge",
        columns={"updated_at": {"data_type": "timestamp"}},
    )
    def points():
        session = requests.Client().session
        for after in range(-1, records - 1, PAGE):
            yield session.get(url, params={"after": after, "limit": PAGE}).json()

    # dlt insists on a password, though nobody asks for it
    login = database.replace("postgres@", "postgres:none@")
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        destination=dlt.destinations.postgres(login),
        dataset_name="bench",
    )
    print(pipeline.run(points(), loader_file_format="csv"), file=sys.stderr)


if __name__ == "__main__":
    url, database, records = sys.argv[1:]
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        os.environ["DLT_DATA_DIR"] = folder
        import_points(url, database, int(records))
