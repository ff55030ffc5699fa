-- The outbox. A message without `due_at` was sent, and nobody has to confirm it.

-- name: hold_destination
-- Nothing to do: who writes is alone.
select :kind, :destination;

-- name: add_message
insert into penstock_outbox (kind, destination, payload, created_at, due_at)
select :kind, :destination, :payload, :now, :now
where :most is null or :most > (
    select count(*) from penstock_outbox
    where kind = :kind and destination = :destination and due_at is not null
);

-- name: take_messages
update penstock_outbox
set attempts = attempts + 1, due_at = :now + :lasting
where id in (
    select id from penstock_outbox
    where kind = :kind and due_at <= :now
        and (:destination is null or destination = :destination)
    order by due_at, id
    limit :most
)
returning id, kind, destination, payload, attempts, sends;

-- name: mark_messages_sent
update penstock_outbox
set sends = sends + 1, sent_at = :now, error = null,
    due_at = :now + :confirm_within * (1 << min(sends, 6))
where id in (select value from json_each(:ids));

-- name: postpone_messages
update penstock_outbox
set due_at = :now + :delay, error = :error
where id in (select value from json_each(:ids));

-- name: give_up_messages
-- As if it was sent, but never was: `forget_messages` removes it later.
update penstock_outbox
set due_at = null, sent_at = :now, error = :error
where id in (select value from json_each(:ids));

-- name: drop_overdue_messages
delete from penstock_outbox
where kind = :kind and due_at < :now - :overdue
    and destination not in (select value from json_each(:known))
returning destination;

-- name: outbox_destinations
select destination,
    count(*) filter (where due_at is not null) as waiting,
    count(*) filter (where due_at is null) as given_up,
    (
        select newest.error from penstock_outbox as newest
        where newest.kind = :kind and newest.destination = penstock_outbox.destination
            and newest.sends = 0 and newest.error is not null
        order by newest.id desc
        limit 1
    ) as error
from penstock_outbox
where kind = :kind and sends = 0
group by destination
order by destination;

-- name: settle_messages
delete from penstock_outbox where id in (select value from json_each(:ids));

-- name: unsettled_messages
select id, kind, destination, payload, attempts, sends
from penstock_outbox
where kind = :kind and due_at is not null
order by id;

-- name: unreceived_messages
select :now - sent_at as sent_for
from penstock_outbox
where kind = :kind and destination = :destination and due_at is not null
    and sent_at is not null
order by sent_at, id;

-- name: outbox_backlog
select count(*) as messages,
    :now - min(created_at) filter (where sends = 0) as unsent_for
from penstock_outbox
where kind = :kind and due_at is not null;

-- name: forget_messages
delete from penstock_outbox
where id in (
    select id from penstock_outbox
    where due_at is null and sent_at < :now - :sent
    order by sent_at
    limit :most
);
