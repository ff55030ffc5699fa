-- Queries of the API.

-- name: find_changes
-- Pages are found by index; only their entries after the given one are returned.
select seq, kind, change.key::text as key, import_id, at, tag
from (
    select * from penstock_change_page
    where dataset = %(dataset)s and last_seq > %(after)s
    order by last_seq
    limit %(limit)s
) as page
cross join lateral (
    select first_seq + position - 1 as seq,
        case when position <= created then 'created'
            when position <= created + updated then 'updated'
            else 'deleted' end as kind,
        key
    from json_array_elements(keys) with ordinality as entry (key, position)
) as change
where seq > %(after)s
order by seq
limit %(limit)s;

-- name: get_secret
select value from penstock_secret where name = %(name)s;

-- name: add_secret
insert into penstock_secret (name, value, created_at)
values (%(name)s, %(value)s, {now})
on conflict (name) do nothing;
