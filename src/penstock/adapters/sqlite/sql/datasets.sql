-- List and drop whole datasets.

-- name: list_datasets
-- Including datasets of which only imports are left.
select name, fields, (
        select count(*) from penstock_quarantine
        where dataset = name and resolved is null
    ) as bad_rows, (
        select max(finished_at) from penstock_import
        where dataset = name and status = 'done'
    ) as done_at, (
        select max(id) from penstock_import where dataset = name
    ) as last_import
from penstock_dataset
where fields <> '{}' or exists (select 1 from penstock_import where dataset = name)
order by name;

-- name: hold_dataset
select * from penstock_dataset where name = :dataset;

-- name: share_dataset
select * from penstock_dataset where name = :dataset;

-- name: unfinished_import
select id from penstock_import
where dataset = :dataset and status in ('planning', 'running')
order by id
limit 1;

-- name: cancel_failed_imports
-- Their jobs belong to the previous rows, and must not be retried.
update penstock_import set status = 'cancelled', note = :note
where dataset = :dataset and status = 'failed';

-- name: forget_fields
update penstock_dataset set fields = '{}', watermark = null where name = :dataset;

-- name: forget_rejection_keys
update penstock_quarantine set key = null where dataset = :dataset and key is not null;

-- name: forget_vocabulary
delete from penstock_vocabulary where dataset = :dataset;

-- name: drop_changes
delete from penstock_change
where dataset = :dataset and seq in (
    select seq from penstock_change
    where dataset = :dataset and seq <= :until
    order by seq
    limit :limit
);

-- name: drop_rejections
delete from penstock_quarantine
where id in (
    select id from penstock_quarantine where import_id = :import_id limit :limit
);

-- name: drop_pages
delete from penstock_page
where (job_id, page_seq) in (
    select job_id, page_seq from penstock_page
    where job_id in (select value from json_each(:jobs))
    limit :limit
);

-- name: drop_jobs
delete from penstock_job where id in (select value from json_each(:jobs));

-- name: drop_requests
delete from penstock_request where import_id = :import_id;

-- name: drop_counts
-- The counts are columns of the import: there is nothing to delete.
delete from penstock_import where false and id = :import_id;

-- name: drop_correction
delete from penstock_correction where import_id = :import_id;

-- name: drop_import
delete from penstock_import where id = :import_id;

-- name: imports_of
select id from penstock_import where dataset = :dataset order by id;
