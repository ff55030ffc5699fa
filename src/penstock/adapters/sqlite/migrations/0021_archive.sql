-- Proven full imports of datasets whose missing rows are archived: rows name the import
-- that has seen them last, and the imports themselves are removed earlier.
create table penstock_sighting (
    dataset text not null,
    import_id integer not null,
    started_at integer not null,
    -- when it ended, or the last import that found its files unchanged
    seen_at integer not null,
    primary key (dataset, import_id)
) strict, without rowid;
