"""A row that is too wide for PostgreSQL is bad, and stops nothing."""

from tests.support.stores import Kind, on
from tests.support.workshop import Workshop

COLUMNS = 400
# as many bytes as PostgreSQL neither moves out of a row nor makes smaller
WIDE = "0123456789abcdefghijklm"
FIELDS = "\n".join(f'c{at} = {{ column = "c{at}" }}' for at in range(COLUMNS))
DATASET = f"""
[datasets.wide]
key = "id"
[datasets.wide.fields]
id = {{ type = "int" }}
{FIELDS}
[datasets.wide.source]
type = "csv"
files = "wide.csv"
timeout = "500ms"
"""


def row(key: int, value: str) -> str:
    return ",".join([str(key), *[value] * COLUMNS])


@on(Kind.POSTGRES)
def test_a_row_too_wide_for_a_page_is_bad_and_the_others_are_stored(
    file_workshop: Workshop,
):
    header = ",".join(["id", *(f"c{at}" for at in range(COLUMNS))])
    values = {key: WIDE if key % 50 == 7 else "x" for key in range(120)}
    rows = [row(key, value) for key, value in values.items()]
    (file_workshop.folder / "wide.csv").write_text("\n".join([header, *rows, ""]))
    file_workshop.declare(DATASET)

    ran = file_workshop.penstock("run", "wide", "--json")

    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out + ran.err
    assert ran.json["records"]["inserted"] == 117
    assert ran.json["records"]["quarantined"] == 3
    bad = file_workshop.penstock("quarantine", "wide", "--json").json["rows"]
    assert {each["reason"] for each in bad} == {"unstorable"}
    assert "bytes in its table, where a row has room for 8,160" in bad[0]["detail"]
    assert sorted(each["line"] for each in bad) == [9, 59, 109]
    replayed = file_workshop.penstock("quarantine", "replay", "wide", "--json")
    assert (replayed.code, replayed.json["still_bad"]) == (0, 3), replayed.out
