-- By which a page is recognised when it comes again, and what it brought.
alter table penstock_page add column imprint blob;
alter table penstock_page add column memo text;

create index penstock_page_imprint on penstock_page (imprint)
where imprint is not null;

-- Rows of files: those whose key had come before, and where bad ones stand.
alter table penstock_job add column duplicates integer not null default 0;
alter table penstock_import add column duplicates integer not null default 0;
alter table penstock_quarantine add column line integer;
alter table penstock_quarantine add column byte_offset integer;

-- When an import ended: the last change of the dataset, its live rows, and the terms.
alter table penstock_import add column change_seq integer;
alter table penstock_import add column live integer;
alter table penstock_import add column terms text;
