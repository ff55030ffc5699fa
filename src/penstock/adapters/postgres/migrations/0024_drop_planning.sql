-- The plan of an import is leased as a job.
drop table penstock_planning;
