"""What every store of tables promises."""

from dataclasses import replace

import pytest

from penstock.domain.dataset import FieldType
from penstock.errors import Misconfigured
from penstock.ports import Stores
from tests.builders import (
    claim,
    dataset,
    int_field,
    last,
    plan,
    record,
    rows,
    run,
    text_field,
    typed_field,
)

POI = dataset()


class SchemaContract:
    """Subclasses bring `bare_stores` (nothing migrated) and `stores` (migrated)."""

    def test_migrating_tells_what_was_applied(self, bare_stores: Stores):
        assert bare_stores.schema.migrate()

    def test_migrating_again_applies_nothing(self, stores: Stores):
        assert list(stores.schema.migrate()) == []

    def test_using_a_store_that_was_never_migrated_tells_the_remedy(
        self, bare_stores: Stores
    ):
        with pytest.raises(Misconfigured, match="penstock migrate"):
            bare_stores.imports.recent(dataset=None, limit=1)

    def test_a_prepared_dataset_is_empty(self, stores: Stores):
        stores.schema.prepare(POI)

        assert rows(stores, POI) == []

    def test_preparing_again_keeps_what_is_stored(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))

        stores.schema.prepare(POI)

        assert rows(stores, POI) == [(1, "one")]

    def test_a_field_that_the_declaration_gained_is_added_in_place(
        self, stores: Stores
    ):
        run(stores, POI, last(record(1, "one")))
        grown = replace(POI, fields=(*POI.fields, int_field("points")))

        stores.schema.prepare(grown)

        assert rows(stores, grown) == [(1, "one", None)]

    def test_a_field_can_be_added_while_an_import_runs(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        grown = replace(POI, fields=(*POI.fields, int_field("points")))

        stores.schema.prepare(grown)
        stores.ledger.commit_page(POI, lease, last(record(1, "one")))

        assert rows(stores, grown) == [(1, "one", None)]

    def test_a_field_that_the_declaration_lost_is_no_longer_read(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))
        smaller = replace(POI, fields=POI.fields[:1])

        stores.schema.prepare(smaller)

        assert rows(stores, smaller) == [(1,)]

    @pytest.mark.parametrize(
        "kind",
        [FieldType.INT, FieldType.FLOAT, FieldType.TIMESTAMP, FieldType.JSON],
    )
    def test_a_changed_type_is_refused(self, stores: Stores, kind):
        stores.schema.prepare(POI)
        changed = replace(POI, fields=(POI.fields[0], typed_field("title", kind)))

        with pytest.raises(Misconfigured, match=r"datasets\.poi\.fields\.title"):
            stores.schema.prepare(changed)

    def test_a_changed_key_is_refused(self, stores: Stores):
        stores.schema.prepare(POI)

        with pytest.raises(Misconfigured, match=r"datasets\.poi\.key"):
            stores.schema.prepare(replace(POI, key=("id", "title")))

    def test_a_refused_declaration_changes_nothing(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))
        refused = replace(
            POI,
            fields=(
                POI.fields[0],
                text_field("town"),
                typed_field("title", FieldType.INT),
            ),
        )
        with pytest.raises(Misconfigured):
            stores.schema.prepare(refused)

        # had "town" been added as text, a whole number would be refused now
        grown = replace(POI, fields=(*POI.fields, int_field("town")))
        stores.schema.prepare(grown)

        assert rows(stores, grown) == [(1, "one", None)]

    def test_names_are_taken_literally(self, stores: Stores):
        odd = dataset(
            'select "x"; --',
            fields=(int_field("order", required=True), text_field('a "b" group')),
            key=("order",),
            filter=('a "b" group',),
        )

        run(stores, odd, last(record(1, "one", of=odd)))

        assert rows(stores, odd) == [(1, "one")]
