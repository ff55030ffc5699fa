-- What people have done.

-- name: add_action
insert into penstock_action (at, actor, name, subject, via)
values (:now, :actor, :name, :subject, :via);

-- name: recent_actions
select * from penstock_action
where :before is null or id < :before
order by id desc
limit :limit;

-- name: count_old_actions
-- They were added in the order of their times.
select count(*) as counted from penstock_action where at < :now - :age;

-- name: forget_actions
delete from penstock_action
where id in (
    select id from penstock_action order by id limit :limit
) and at < :now - :age;
