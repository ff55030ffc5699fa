-- Datasets as a whole: listing and removing them.

-- name: list_datasets
-- Includes those without a table, of which only imports are left.
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
select * from penstock_dataset where name = %(dataset)s for update;

-- name: share_dataset
-- Does not block pages, only dropping or converting the dataset.
select * from penstock_dataset where name = %(dataset)s for key share;

-- name: unfinished_import
select id from penstock_import
where dataset = %(dataset)s and status in ('planning', 'running')
order by id
limit 1;

-- name: hold_failed_imports
-- So that none of them is retried meanwhile.
select id from penstock_import
where dataset = %(dataset)s and status = 'failed'
order by id
for no key update;

-- name: cancel_failed_imports
-- Their jobs belong to the rows before, so none of them may be retried.
update penstock_import set status = 'cancelled', note = %(note)s
where dataset = %(dataset)s and status = 'failed';

-- name: forget_fields
update penstock_dataset set fields = '{}', watermark = null where name = %(dataset)s;

-- name: forget_rejection_keys
update penstock_quarantine set key = null
where dataset = %(dataset)s and key is not null;

-- name: forget_shapes
-- Only SQLite stores shapes of words.
delete from penstock_word where false and dataset = %(dataset)s;

-- name: forget_words
delete from penstock_word where dataset = %(dataset)s;

-- name: forget_vocabulary
delete from penstock_vocabulary where dataset = %(dataset)s;

-- name: drop_changes
delete from penstock_change_page
where dataset = %(dataset)s and last_seq in (
    select last_seq from penstock_change_page
    where dataset = %(dataset)s and last_seq <= %(until)s
    order by last_seq
    limit %(limit)s
);

-- name: drop_rejections
delete from penstock_quarantine
where id in (
    select id from penstock_quarantine
    where import_id = %(import_id)s
    limit %(limit)s
);

-- name: drop_pages
delete from penstock_page
where (job_id, page_seq) in (
    select job_id, page_seq from penstock_page
    where job_id in (select value::bigint from json_array_elements_text(%(jobs)s::json))
    limit %(limit)s
);

-- name: drop_jobs
delete from penstock_job
where id in (select value::bigint from json_array_elements_text(%(jobs)s::json));

-- name: drop_requests
delete from penstock_request where import_id = %(import_id)s;

-- name: drop_counts
delete from penstock_import_count where import_id = %(import_id)s;

-- name: drop_correction
delete from penstock_correction where import_id = %(import_id)s;

-- name: drop_import
delete from penstock_import where id = %(import_id)s;

-- name: imports_of
select id from penstock_import where dataset = %(dataset)s order by id;
