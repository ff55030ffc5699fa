-- What people have done.

-- name: add_action
insert into penstock_action (at, actor, name, subject, via)
values ({now}, %(actor)s, %(name)s, %(subject)s, %(via)s);

-- name: recent_actions
select * from penstock_action
where %(before)s::bigint is null or id < %(before)s
order by id desc
limit %(limit)s;

-- name: count_old_actions
-- They were added in the order of their times.
select count(*) as counted from penstock_action where at < {now} - %(age)s * interval '1 microsecond';

-- name: forget_actions
delete from penstock_action
where id in (
    select id from penstock_action order by id limit %(limit)s
) and at < {now} - %(age)s * interval '1 microsecond';
