"""Events as lines of a log."""

import io
import json

from penstock.adapters.telemetry.log import log_events
from penstock.domain.events import FileSurveyed


def test_a_list_is_reported_as_a_list_without_secrets():
    out = io.StringIO()
    emit = log_events(
        redact=lambda text: text.replace("s3cr3t", "${KEY}"), as_json=True, stream=out
    )

    emit(
        FileSurveyed(
            dataset="shops",
            file="a.csv",
            size=9,
            shards=1,
            warnings=("delimiter ';' is a guess", "column 's3cr3t' is not declared"),
        )
    )

    body = json.loads(out.getvalue())
    assert body["event"] == "file_surveyed"
    assert body["warnings"] == [
        "delimiter ';' is a guess",
        "column '${KEY}' is not declared",
    ]
