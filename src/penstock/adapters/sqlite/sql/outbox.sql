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

-- name: settle_messages
delete from penstock_outbox where id in (select value from json_each(:ids));

-- name: unsettled_messages
select id, kind, destination, payload, attempts, sends
from penstock_outbox
where kind = :kind and due_at is not null
order by id;

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
