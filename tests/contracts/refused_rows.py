"""What every store promises of rows that the database itself refuses."""

import pytest

from penstock.domain.pages import Reason, Rejection
from penstock.domain.record_validation import Precondition
from penstock.errors import BadRequest, RowsRefused
from penstock.flow.edit_records import EditRecords
from penstock.ports import Replay, Stores
from penstock.ports.record_access import ApiStores
from tests.contracts.schema import Ask
from tests.support.builders import (
    batch,
    claim,
    dataset,
    last,
    plan,
    record,
    rejection,
    rows,
    run,
)

POI = dataset()
# refuses the second row of a title, which no declaration can know
THEIRS = "create unique index theirs on poi (title)"


class RefusedRowsContract:
    """Subclasses bring `stores`, `served` and `ask`."""

    @pytest.mark.parametrize("known", [(), (record(9, "nine"), record(8, "eight"))])
    def test_a_page_names_the_rows_that_are_refused(
        self, stores: Stores, ask: Ask, known
    ):
        run(stores, POI, last(record(0, "taken"), *known))
        ask(THEIRS)
        plan(stores, POI)
        lease = claim(stores, POI)
        good, bad = [record(1), *known], [record(2, "taken"), record(3, "taken")]

        with pytest.raises(RowsRefused) as refused:
            stores.ledger.commit_page(POI, lease, batch(*good, *bad))

        assert {*refused.value.refused} == {each.digest for each in bad}
        assert len(rows(stores, POI)) == 1 + len(known)
        # nothing was committed, so the page can come without them
        stores.ledger.commit_page(POI, lease, batch(*good))
        assert len(rows(stores, POI)) == 2 + len(known)

    def test_a_replay_names_the_rows_that_are_refused(self, stores: Stores, ask: Ask):
        bad = [rejection(0, key=[1]), rejection(1, key=[2])]
        run(stores, POI, last(record(0, "taken"), rejections=bad))
        ask(THEIRS)
        first, second = stores.records.quarantine(POI, after=0, limit=9)
        mended, refused = record(1, "mended"), record(2, "taken")

        with pytest.raises(RowsRefused) as raised:
            stores.records.replay(POI, [(first, mended), (second, refused)])

        assert {*raised.value.refused} == {refused.digest}
        still_bad = Rejection(
            position=1, reason=Reason.UNSTORABLE, detail="refused", raw=b"{}"
        )
        assert stores.records.replay(
            POI, [(first, mended), (second, still_bad)]
        ) == Replay(accepted=1, still_bad=1)

    def test_a_client_learns_which_of_its_records_are_refused(
        self, stores: Stores, served: ApiStores, ask: Ask
    ):
        run(stores, POI, last(record(0, "taken")))
        ask(THEIRS)
        edit = EditRecords(served.edits, stores.records)

        with pytest.raises(BadRequest) as many:
            edit.upsert(POI, [{"id": 1, "title": "a"}, {"id": 2, "title": "taken"}])
        with pytest.raises(BadRequest) as one:
            edit.put(POI, (3,), {"title": "taken"}, Precondition())

        assert [each.pointer for each in many.value.flaws] == ["/1/"]
        assert [each.pointer for each in one.value.flaws] == ["/"]
        # a driver's words are not for clients
        assert "theirs" not in str(many.value)
        assert rows(stores, POI) == [(0, "taken")]
