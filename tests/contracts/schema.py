"""What every store of tables promises."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from penstock.domain.dataset import (
    ROW_KEY,
    ROW_KEY_FIELD,
    FieldType,
    Missing,
    WhenMissing,
)
from penstock.errors import Misconfigured
from penstock.ports import Stores
from tests.support.builders import (
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

Ask: TypeAlias = Callable[[str], list[tuple[object, ...]]]

POI = dataset()
MARKED = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=1))
# what a statement calls tables and columns of its own
WORDS = (
    *("again", "bad", "changed", "come", "compared", "created", "gone", "held"),
    *("is_again", "is_new", "is_revived", "kept", "key", "key_0", "known", "oid"),
    *("place", "rank", "revived", "rowid", "rows", "settled", "shown", "updated"),
    *("value", "words"),
)


class SchemaContract:
    """Subclasses bring `bare_stores` (nothing migrated) and `stores` (migrated).

    And `ask`, which runs a statement as any other tool would, and returns rows.
    """

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
        stores.schema.ensure_table(POI)

        assert rows(stores, POI) == []

    def test_preparing_again_keeps_what_is_stored(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))

        stores.schema.ensure_table(POI)

        assert rows(stores, POI) == [(1, "one")]

    def test_a_field_that_the_declaration_gained_is_added_in_place(
        self, stores: Stores
    ):
        run(stores, POI, last(record(1, "one")))
        grown = replace(POI, fields=(*POI.fields, int_field("points")))

        stores.schema.ensure_table(grown)

        assert rows(stores, grown) == [(1, "one", None)]

    def test_a_field_can_be_added_while_an_import_runs(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        grown = replace(POI, fields=(*POI.fields, int_field("points")))

        stores.schema.ensure_table(grown)
        stores.ledger.commit_page(POI, lease, last(record(1, "one")))

        assert rows(stores, grown) == [(1, "one", None)]

    def test_a_field_that_the_declaration_lost_is_no_longer_read(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))
        smaller = replace(POI, fields=POI.fields[:1])

        stores.schema.ensure_table(smaller)

        assert rows(stores, smaller) == [(1,)]

    @pytest.mark.parametrize(
        "kind",
        [FieldType.INT, FieldType.FLOAT, FieldType.TIMESTAMP, FieldType.JSON],
    )
    def test_a_changed_type_of_stored_values_is_refused(self, stores: Stores, kind):
        run(stores, POI, last(record(1, "one")))
        changed = replace(POI, fields=(POI.fields[0], typed_field("title", kind)))

        with pytest.raises(Misconfigured, match=r"datasets\.poi\.fields\.title"):
            stores.schema.ensure_table(changed)

    def test_a_changed_key_of_stored_rows_is_refused(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))

        with pytest.raises(Misconfigured, match=r"datasets\.poi\.key"):
            stores.schema.ensure_table(replace(POI, key=("id", "title")))

    def test_other_fields_are_refused_where_they_make_the_key_of_each_row(
        self, stores: Stores
    ):
        declared = dataset(
            fields=(ROW_KEY_FIELD, int_field("id"), text_field("title")), key=(ROW_KEY,)
        )
        run(stores, declared, last(record("0" * 32, 1, "one", of=declared)))
        _, number, title = declared.fields

        for fields in (
            (number,),
            (number, title, text_field("town")),
            (number, typed_field("title", FieldType.INT)),
        ):
            changed = replace(declared, fields=(ROW_KEY_FIELD, *fields))
            with pytest.raises(
                Misconfigured, match=r"poi\.fields: (title|town) changed"
            ):
                stores.schema.ensure_table(changed)
            with pytest.raises(Misconfigured, match="depends on all fields"):
                stores.schema.datasets.retype(changed)
        stores.schema.ensure_table(
            replace(declared, fields=(ROW_KEY_FIELD, title, number))
        )
        with pytest.raises(Misconfigured, match=r"datasets\.poi\.key"):
            stores.schema.ensure_table(POI)

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
            stores.schema.ensure_table(refused)

        # had "town" been added as text, a whole number would be refused now
        grown = replace(POI, fields=(*POI.fields, int_field("town")))
        stores.schema.ensure_table(grown)

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

    def test_the_live_view_shows_the_rows_that_are_not_deleted(
        self, stores: Stores, ask: Ask
    ):
        run(stores, MARKED, last(record(1, "one"), record(2, "two")))
        run(stores, MARKED, last(record(2, "two")))

        assert ask("select count(*) from poi") == [(2,)]
        assert ask("select id, title from poi_live") == [(2, "two")]

    def test_the_live_view_gains_the_fields_that_the_declaration_gained(
        self, stores: Stores, ask: Ask
    ):
        run(stores, POI, last(record(1, "one")))
        grown = replace(POI, fields=(int_field("points"), *POI.fields))

        stores.schema.ensure_table(grown)

        assert ask("select id, title, points from poi_live") == [(1, "one", None)]
        assert list(stores.schema.pending_table_changes(grown)) == []

    def test_a_database_without_live_views_gets_them(self, stores: Stores, ask: Ask):
        run(stores, POI, last(record(1, "one")))
        ask("drop view poi_live")

        assert list(stores.schema.pending_table_changes(POI)) == [
            "create view poi_live"
        ]
        stores.schema.ensure_table(POI)

        assert ask("select id from poi_live") == [(1,)]

    def test_another_view_may_be_built_upon_the_live_view(
        self, stores: Stores, ask: Ask
    ):
        run(stores, POI, last(record(1, "one")))
        ask("create view report as select count(*) as rows from poi_live")

        stores.schema.ensure_table(
            replace(POI, fields=(*POI.fields, int_field("points")))
        )

        assert ask("select rows from report") == [(1,)]

    def test_a_view_of_somebody_else_keeps_its_name(self, stores: Stores, ask: Ask):
        ask("create view poi_live as select 7 as seven")

        run(stores, POI, last(record(1, "one")))

        assert ask("select seven from poi_live") == [(7,)]
        assert list(stores.schema.pending_table_changes(POI)) == []

    def test_a_dataset_whose_name_a_view_has_is_refused(self, stores: Stores):
        stores.schema.ensure_table(POI)

        with pytest.raises(Misconfigured, match=r"datasets\.poi_live: .* a view"):
            stores.schema.ensure_table(dataset("poi_live"))

    def test_a_field_may_have_any_name_that_statements_use(self, stores: Stores):
        """Every word of our own statements stands for the declared column."""
        names = WORDS
        odd = dataset(
            fields=(POI.fields[0], *map(text_field, names)), filter=(names[0],)
        )
        first = record(1, *(f"a {name}" for name in names), of=odd)
        second = record(1, *(f"b {name}" for name in names), of=odd)

        run(stores, odd, last(first))
        stores.schema.maintain(odd)
        run(stores, odd, last(second))

        assert rows(stores, odd) == [second.values]
