-- The outbox. A message without `due_at` was sent, and nobody has to confirm it.

-- name: hold_destination
-- Until the end of the transaction: else messages that are added at the same moment
-- would not count each other.
select pg_advisory_xact_lock(
    hashtextextended(
        jsonb_build_array(
            'outbox', current_schema(), %(kind)s::text, %(destination)s::text
        )::text,
        0
    )
);

-- name: add_message
insert into penstock_outbox (kind, destination, payload, created_at, due_at)
select %(kind)s::text, %(destination)s::text, %(payload)s::jsonb, {now}, {now}
where %(most)s::bigint is null or %(most)s > (
    select count(*) from penstock_outbox
    where kind = %(kind)s and destination = %(destination)s and due_at is not null
);

-- name: take_messages
-- Messages that another process is taking are skipped without waiting.
with due as materialized (
    select id from penstock_outbox
    where kind = %(kind)s and due_at <= {now}
        and (%(destination)s::text is null or destination = %(destination)s)
    order by due_at, id
    limit %(most)s
    for update skip locked
)
update penstock_outbox
set attempts = attempts + 1, due_at = {now} + %(lasting)s * interval '1 microsecond'
where id in (select id from due)
returning id, kind, destination, payload, attempts, sends;

-- name: mark_messages_sent
update penstock_outbox
set sends = sends + 1, sent_at = {now}, error = null,
    due_at = {now} + %(confirm_within)s::bigint * (1 << least(sends, 6))
        * interval '1 microsecond'
where id in (select value::bigint from jsonb_array_elements_text(%(ids)s::jsonb));

-- name: postpone_messages
update penstock_outbox
set due_at = {now} + %(delay)s * interval '1 microsecond', error = %(error)s
where id in (select value::bigint from jsonb_array_elements_text(%(ids)s::jsonb));

-- name: give_up_messages
-- As if it was sent, but never was: `forget_messages` removes it later.
update penstock_outbox
set due_at = null, sent_at = {now}, error = %(error)s
where id in (select value::bigint from jsonb_array_elements_text(%(ids)s::jsonb));

-- name: drop_overdue_messages
with overdue as materialized (
    select id from penstock_outbox
    where kind = %(kind)s
        and due_at < {now} - %(overdue)s * interval '1 microsecond'
        and destination not in (
            select jsonb_array_elements_text(%(known)s::jsonb)
        )
    for update skip locked
)
delete from penstock_outbox
where id in (select id from overdue)
returning destination;

-- name: outbox_destinations
select destination,
    count(*) filter (where due_at is not null) as waiting,
    count(*) filter (where due_at is null) as given_up,
    (array_agg(error order by id desc) filter (where error is not null))[1] as error
from penstock_outbox
where kind = %(kind)s and sends = 0
group by destination
order by destination;

-- name: settle_messages
delete from penstock_outbox
where id in (select value::bigint from jsonb_array_elements_text(%(ids)s::jsonb));

-- name: unsettled_messages
select id, kind, destination, payload, attempts, sends
from penstock_outbox
where kind = %(kind)s and due_at is not null
order by id;

-- name: unreceived_messages
select (extract(epoch from {now} - sent_at) * 1000000)::bigint as sent_for
from penstock_outbox
where kind = %(kind)s and destination = %(destination)s and due_at is not null
    and sent_at is not null
order by sent_at, id;

-- name: outbox_backlog
select count(*) as messages,
    (
        extract(epoch from {now} - min(created_at) filter (where sends = 0)) * 1000000
    )::bigint as unsent_for
from penstock_outbox
where kind = %(kind)s and due_at is not null;

-- name: forget_messages
delete from penstock_outbox
where id in (
    select id from penstock_outbox
    where due_at is null and sent_at < {now} - %(sent)s * interval '1 microsecond'
    order by sent_at
    limit %(most)s
);
