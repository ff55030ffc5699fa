-- Proven full imports, by which it is known since when rows are missing.

-- name: sightings
select import_id, started_at, seen_at from penstock_sighting
where dataset = :dataset
order by import_id;

-- name: add_sighting
insert into penstock_sighting (dataset, import_id, started_at, seen_at)
select :dataset, id, created_at, :now from penstock_import
where id = :import_id;

-- name: extend_sighting
-- The newest one: the import of unchanged files has found the same rows.
update penstock_sighting set seen_at = :now
where dataset = :dataset and import_id = (
    select max(import_id) from penstock_sighting where dataset = :dataset
);

-- name: forget_sightings
delete from penstock_sighting
where dataset = :dataset and import_id < :before;

-- name: forget_all_sightings
delete from penstock_sighting where dataset = :dataset;
