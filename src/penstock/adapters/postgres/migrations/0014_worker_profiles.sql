-- Where a worker runs, and whether it hears of work. Workers of earlier versions leave
-- these empty.
alter table penstock_worker add column host text;
alter table penstock_worker add column pid bigint;
alter table penstock_worker add column version text;
alter table penstock_worker add column threads integer;
alter table penstock_worker add column seen_at timestamptz;
alter table penstock_worker add column last_claim_at timestamptz;
