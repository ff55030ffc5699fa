-- By which a page is recognised when it comes again, and what it brought.
alter table penstock_page add column imprint blob;
alter table penstock_page add column memo text;

create index penstock_page_imprint on penstock_page (imprint)
where imprint is not null;
