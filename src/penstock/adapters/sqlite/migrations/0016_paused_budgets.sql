-- Since when a budget is closed or stopped, in microseconds.
alter table penstock_budget add column paused_at integer;
