-- When another store last told what it had counted of a budget.
alter table penstock_budget add column noted_at integer not null default 0;
