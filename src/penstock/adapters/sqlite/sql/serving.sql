-- Reads of the API.

-- name: find_changes
select seq, kind, key, import_id, at, tag from penstock_change
where dataset = :dataset and seq > :after
order by seq
limit :limit;

-- name: get_secret
select value from penstock_secret where name = :name;

-- name: add_secret
insert into penstock_secret (name, value, created_at) values (:name, :value, :now)
on conflict (name) do nothing;
