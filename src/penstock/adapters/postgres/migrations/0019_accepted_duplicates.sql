-- Whether a full import may have more rows that lost to another row of their key than
-- max_duplicates; decided when it begins, or by whoever goes on with it.
alter table penstock_import
add column accepts_duplicates boolean not null default false;

-- a view has the columns that its table had when it was made
drop view penstock_import_told;

create view penstock_import_told as
select penstock_import.*, counted.*
from penstock_import
cross join lateral (
    select
        coalesce(sum(pages), 0)::bigint as pages,
        coalesce(sum(requests), 0)::bigint as requests,
        coalesce(sum(seen), 0)::bigint as seen,
        coalesce(sum(inserted), 0)::bigint as inserted,
        coalesce(sum(updated), 0)::bigint as updated,
        coalesce(sum(unchanged), 0)::bigint as unchanged,
        coalesce(sum(quarantined), 0)::bigint as quarantined,
        coalesce(sum(dropped), 0)::bigint as dropped,
        coalesce(sum(duplicates), 0)::bigint as duplicates,
        coalesce(sum(rescues), 0)::bigint as rescues,
        min(scan_started_at) as scan_started_at
    from penstock_import_count
    where import_id = penstock_import.id
) as counted;
