"""The bad rows of files are downloaded in their format, corrected and uploaded."""

import gzip

import pytest

from penstock.domain.jobs import ImportId, ImportStatus, WorkerId
from penstock.domain.pages import Proof, Reason, Rejection
from tests.support.api_client import OF, ApiResponse
from tests.support.api_server import FORM, Running, form
from tests.support.builders import batch

IMPORTS = "/api/v1/imports"
FILE = (
    'uid;name;points;city\r\na;"Ärz; Co";1;Köln\r\nb;;2;"a ""q"""\r\n'
    ";No key;3;Bonn\r\nc;Cee;many;Ulm\r\nd;Dee;4;Jena;extra\r\n"
)
REJECTS = (
    'uid;name;points;city\r\nb;;2;"a ""q"""\r\n;No key;3;Bonn\r\n'
    "c;Cee;many;Ulm\r\nd;Dee;4;Jena;extra\r\n"
)
CORRECTED = (
    'uid;name;points;city\r\nb;Ben;2;"a ""q"""\r\ne;No key;3;Bonn\r\n'
    "c;Cee;3;Ulm\r\nd;Dee;4;Jena\r\n"
)


def upload(running: Running, content: bytes, *, corrects: object = None) -> ApiResponse:
    parts: list[tuple[str, str | None, bytes]] = [("file", "list.csv", content)]
    if corrects is not None:
        parts.append(("corrects", None, str(corrects).encode()))
    return running.client.ask(
        "POST", f"{OF}/shops/imports", body=form(*parts), headers=FORM
    )


def imported(running: Running, text: str = FILE, *, corrects: object = None) -> int:
    response = upload(running, text.encode("latin-1"), corrects=corrects)
    assert response.status == 202, response.body
    running.work()
    import_id = int(response.json["import_id"])
    running.wait_for(import_id, ImportStatus.DONE)
    return import_id


def rejects(running: Running, import_id: int, query: str = "") -> ApiResponse:
    return running.client.get(f"{IMPORTS}/{import_id}/rejects.csv{query}")


def open_reasons(running: Running, import_id: int) -> list[str]:
    rows = running.stores.records.rejected(ImportId(import_id), after=0, limit=100)
    return sorted(row.rejection.reason for row in rows if row.resolved is None)


def stored(running: Running) -> dict[object, tuple[object, ...]]:
    rows = running.stores.records.rows(running.api.dataset("shops"))
    return {row[0]: row[1:] for row in rows}


class TestDownload:
    def test_the_bad_rows_have_the_format_of_their_file(self, running: Running):
        response = rejects(running, imported(running))

        assert response.status == 200, response.body
        assert response.body == REJECTS.encode("latin-1")
        assert response.headers["content-type"] == "text/csv"
        assert "-rejects.csv" in response.headers["content-disposition"]

    def test_a_mark_and_another_encoding_remain(self, running: Running):
        text = "\ufeffuid,name,points\na,Ä,1\nb,Ü,x\nc,Ö,2"
        response = upload(running, gzip.compress(text.encode("utf-16-le")))
        running.work()

        body = rejects(running, response.json["import_id"]).body

        assert body.decode("utf-16-le") == "\ufeffuid,name,points\nb,Ü,x\n"

    def test_a_row_without_a_line_end_gets_one(self, running: Running):
        import_id = imported(running, "uid,name,points\na,Ann,1\nb,Ben,2,x")

        body = rejects(running, import_id).body

        assert body == b"uid,name,points\nb,Ben,2,x\n"

    def test_bytes_that_cannot_be_decoded_remain(self, running: Running):
        content = b"uid,name,points\na,\xc3\x84rz,1\nb,B\xffn,2\nc,\xc3\x84,x\n"
        response = upload(running, content)
        running.work()

        body = rejects(running, response.json["import_id"]).body

        assert body == b"uid,name,points\nb,B\xffn,2\nc,\xc3\x84,x\n"

    def test_of_several_files_one_is_chosen(self, running: Running):
        for name in ("one", "two"):
            path = running.folder / f"shops-{name}.csv"
            path.write_text(f"uid,name,points\n{name},N,1\n{name},,2\n")
        response = running.client.post(f"{OF}/shops/imports", {})
        import_id = response.json["import_id"]
        running.wait_for(import_id, ImportStatus.RUNNING)
        running.work()
        running.wait_for(import_id, ImportStatus.DONE)

        refused = rejects(running, import_id)
        chosen = rejects(running, import_id, "?file=shops-two.csv")

        assert refused.status == 409
        assert "?file=" in refused.json["detail"]
        assert chosen.body == b"uid,name,points\ntwo,,2\n"
        assert rejects(running, import_id, "?file=shops-three.csv").status == 409

    def test_there_is_nothing_to_correct_without_bad_rows(self, running: Running):
        import_id = imported(running, "uid,name,points\na,Ann,1\n")

        assert rejects(running, import_id).status == 409
        assert rejects(running, 2**62).status == 404

    def test_a_file_that_is_gone_has_no_format(self, running: Running):
        import_id = imported(running)
        for path in running.spooled():
            path.unlink()

        response = rejects(running, import_id)

        assert response.status == 409
        assert "errors.csv" in response.json["detail"]

    def test_records_of_a_provider_have_no_file(self, running: Running):
        started = running.client.post(f"{OF}/poi/imports", {})

        response = rejects(running, started.json["import_id"])

        assert response.status == 409
        assert "provider" in response.json["detail"]


class TestCorrecting:
    def test_corrected_rows_are_stored_and_leave_quarantine(self, running: Running):
        import_id = imported(running)
        assert len(open_reasons(running, import_id)) == 4

        correction = imported(running, CORRECTED, corrects=import_id)

        assert open_reasons(running, import_id) == []
        assert open_reasons(running, correction) == []
        rows = stored(running)
        assert {key: rows[key] for key in "abcde"} == {
            "a": ("Ärz; Co", 1),
            "b": ("Ben", 2),
            "c": ("Cee", 3),
            "d": ("Dee", 4),
            "e": ("No key", 3),
        }
        assert rejects(running, import_id).status == 409

    def test_without_saying_so_rows_without_a_key_stay(self, running: Running):
        import_id = imported(running)

        imported(running, CORRECTED)

        # those with a key were replaced by good rows of it
        assert open_reasons(running, import_id) == ["missing", "too_many_values"]

    def test_a_row_that_is_still_bad_stays(self, running: Running):
        import_id = imported(running)

        text = CORRECTED.replace("c;Cee;3", "c;Cee;few")
        correction = imported(running, text, corrects=import_id)

        assert open_reasons(running, import_id) == [
            "missing",
            "too_many_values",
            "type",
        ]
        assert open_reasons(running, correction) == ["type"]

    def test_rows_that_were_left_out_stay(self, running: Running):
        import_id = imported(running)

        text = CORRECTED.replace("e;No key;3;Bonn\r\n", "")
        imported(running, text, corrects=import_id)

        assert open_reasons(running, import_id) == ["missing", "too_many_values"]

    def test_bad_rows_of_another_import_stay(self, running: Running):
        other, import_id = imported(running), imported(running, FILE + "\r\n")

        imported(running, CORRECTED, corrects=import_id)

        assert open_reasons(running, import_id) == []
        assert open_reasons(running, other) == ["missing", "too_many_values"]

    @pytest.mark.parametrize("text", ["0", "x", "-1", "", "9" * 30, str(2**63)])
    def test_it_must_be_the_id_of_an_import(self, running: Running, text: str):
        response = upload(running, CORRECTED.encode(), corrects=text)

        assert response.status == 422
        assert response.flaws == {"/corrects": "type"}
        assert running.spooled() == []

    def test_it_must_be_a_finished_import_of_the_dataset(self, running: Running):
        other = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        unfinished = upload(running, FILE.encode("latin-1")).json["import_id"]

        refused = [
            upload(running, CORRECTED.encode(), corrects=import_id)
            for import_id in (other, unfinished, 2**62)
        ]

        assert [each.status for each in refused] == [409, 409, 409]
        assert len(running.spooled()) == 1

    def test_the_pages_lead_from_the_import_to_its_correction(self, running: Running):
        import_id = imported(running)
        upload_page = f"/upload/shops?corrects={import_id}"

        page = running.client.get(f"/imports/{import_id}").body.decode()
        form_page = running.client.get(upload_page).body.decode()

        assert f'href="/api/v1/imports/{import_id}/rejects.csv"' in page
        assert f'href="{upload_page}"' in page
        assert f'id="corrects" value="{import_id}"' in form_page
        assert f'href="/api/v1/imports/{import_id}/rejects.csv"' in form_page
        assert running.client.get("/upload/shops?corrects=x").status == 400
        assert 'id="corrects"' not in running.client.get("/upload/shops").body.decode()


QUARANTINE = f"{OF}/shops/quarantine"


@pytest.fixture
def emptied(running: Running) -> Running:
    """Discard what other tests have left."""
    for reason in running.client.get(QUARANTINE).json["reasons"]:
        discard(running, reason=reason["reason"], field=reason["field"])
    return running


def discard(running: Running, **chosen: object) -> ApiResponse:
    return running.client.post(f"{QUARANTINE}/discard", chosen)


def reasons(running: Running) -> list[tuple[str, str | None, int]]:
    document = running.client.get(QUARANTINE).json
    counted = [
        (each["reason"], each["field"], each["rows"]) for each in document["reasons"]
    ]
    assert document["rows"] == sum(rows for *_, rows in counted)
    return counted


class TestDiscarding:
    def test_rows_are_counted_by_reason_and_discarded_by_it(self, emptied: Running):
        running = emptied
        import_id = imported(running, "uid,name,points\na,A,x\nb,B,y\nc,,1\nd,D\n")
        assert reasons(running) == [
            ("type", "points", 2),
            ("missing", "name", 1),
            ("too_few_values", None, 1),
        ]

        by_field = discard(running, reason="type", field="points")
        without_field = discard(running, reason="too_few_values")
        other_field = discard(running, reason="missing", field="uid")

        assert by_field.json == {"discarded": 2, "has_more": False}
        assert without_field.json["discarded"] == 1
        assert other_field.json["discarded"] == 0
        assert reasons(running) == [("missing", "name", 1)]
        assert open_reasons(running, import_id) == ["missing"]
        assert rejects(running, import_id).body == b"uid,name,points\nc,,1\n"

    def test_rows_that_came_later_are_left(self, emptied: Running):
        running = emptied
        imported(running, "uid,name,points\na,A,x\n")
        (shown,) = running.client.get(QUARANTINE).json["reasons"]
        imported(running, "uid,name,points\nb,B,x\n")

        discarded = discard(
            running, reason="type", field="points", until=shown["until"]
        )

        assert discarded.json["discarded"] == 1
        assert reasons(running) == [("type", "points", 1)]

    def test_rows_are_discarded_by_id_once(self, emptied: Running):
        running = emptied
        import_id = imported(running, "uid,name,points\na,A,x\nb,B,x\n")
        first, second = running.stores.records.rejected(
            ImportId(import_id), after=0, limit=9
        )

        results = [discard(running, ids=[first.id]) for _ in range(2)]

        assert [each.json["discarded"] for each in results] == [1, 0]
        found = running.stores.records.rejected(ImportId(import_id), after=0, limit=9)
        assert [(row.id, row.resolved) for row in found] == [
            (first.id, "discarded"),
            (second.id, None),
        ]
        other = running.client.post(
            f"{OF}/poi/quarantine/discard", {"ids": [second.id]}
        )
        assert other.json["discarded"] == 0

    @pytest.mark.parametrize(
        ("body", "flaws"),
        [
            ({}, {"/reason": "choice"}),
            ({"reason": "ugly"}, {"/reason": "choice"}),
            ({"reason": "type", "field": 7}, {"/field": "type"}),
            ({"reason": "type", "until": 0}, {"/until": "type"}),
            ({"ids": []}, {"/ids": "type"}),
            ({"ids": [1, "2"]}, {"/ids": "type"}),
            ({"ids": [1], "reason": "type"}, {"/reason": "unknown"}),
            ({"ids": [1], "all": True}, {"/all": "unknown"}),
        ],
    )
    def test_what_is_malformed_is_refused(self, running: Running, body, flaws):
        response = discard(running, **body)

        assert response.status == 422
        assert response.flaws == flaws

    def test_the_page_shows_reasons_and_marks_the_value(self, emptied: Running):
        running = emptied
        imported(running, 'uid,name,points\na,A,"a ""b"", c"\nb,B,x\n')

        html = running.client.get(
            "/quarantine/shops", x_penstock_fragment="fresh"
        ).body.decode()

        assert "2 open, by reason" in html
        assert "<mark>&#34;a \\&#34;b\\&#34;, c&#34;</mark>" in html
        assert "Discard 2 bad rows of shops for type in points?" in html
        assert "replay?dry_run=true" in html


class TestDryRun:
    def test_a_dry_run_says_what_a_replay_would_do(self, running: Running):
        poi = running.api.dataset("poi")
        # more than a batch, and a key in the first batch and in the last one
        titles = [b'{"ID": %d, "Title": "x"}' % key for key in (*range(220), 0)]
        quarantine(running, *titles, b'{"ID": "many"}', b'{"ID": "few"}')
        path = f"{OF}/poi/quarantine/replay"

        tried = running.client.ask("POST", f"{path}?dry_run=true").json

        assert running.stores.records.count(poi) == 0
        assert len(running.stores.records.quarantine(poi, after=0, limit=500)) == 223
        done = running.client.ask("POST", path).json
        assert tried.pop("dry_run")
        assert not done.pop("dry_run")
        counts = {"accepted": 220, "superseded": 1, "still_bad": 2}
        reasons = [{"reason": "type", "field": "id", "rows": 2}]
        assert tried == done == {**counts, "reasons": reasons}
        assert running.stores.records.count(poi) == 220
        assert len(running.stores.records.quarantine(poi, after=0, limit=500)) == 2

    def test_it_is_a_flag(self, running: Running):
        path = f"{QUARANTINE}/replay?dry_run=maybe"

        assert running.client.ask("POST", path).flaws == {"?dry_run": "type"}


def quarantine(running: Running, *raws: bytes) -> None:
    """Import these records as bad ones, whether they are or not."""
    poi = running.api.dataset("poi")
    started = running.client.post(f"{OF}/poi/imports", {})
    running.wait_for(started.json["import_id"], ImportStatus.RUNNING)
    rejections = [
        Rejection(position=at, reason=Reason.PATTERN, detail="bad", raw=raw)
        for at, raw in enumerate(raws)
    ]
    ledger = running.stores.ledger
    (lease,) = ledger.claim(
        WorkerId("ann"),
        declarations=running.api.penstock.declarations(["poi"]),
        region=None,
    )
    page = batch(rejections=rejections, proof=Proof.EMPTY_PAGE)
    ledger.commit_page(poi, lease, page)
