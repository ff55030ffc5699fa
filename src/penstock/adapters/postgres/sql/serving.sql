-- What the API asks.

-- name: find_changes
-- Whole pages are found by index, and only the entries after the last one are told.
select seq, kind, told.key::text as key, import_id, at, tag
from (
    select * from penstock_change_page
    where dataset = %(dataset)s and last_seq > %(after)s
    order by last_seq
    limit %(limit)s
) as page
cross join lateral (
    select first_seq + place - 1 as seq,
        case when place <= created then 'created'
            when place <= created + updated then 'updated'
            else 'deleted' end as kind,
        key
    from json_array_elements(keys) with ordinality as each (key, place)
) as told
where seq > %(after)s
order by seq
limit %(limit)s;

-- name: get_secret
select value from penstock_secret where name = %(name)s;

-- name: add_secret
insert into penstock_secret (name, value, created_at)
values (%(name)s, %(value)s, {now})
on conflict (name) do nothing;
