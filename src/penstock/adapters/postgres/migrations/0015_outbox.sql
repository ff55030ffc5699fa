-- Messages for others, written in the transaction of what they are about, and sent later
-- at least once.
create table penstock_outbox (
    id bigint generated always as identity primary key,
    kind text not null,
    -- a queue, or the name of a receiver
    destination text not null,
    payload jsonb not null,
    -- tries to send it, and how many of them succeeded
    attempts integer not null default 0,
    sends integer not null default 0,
    created_at timestamptz not null,
    -- when it is sent; after that, when it is sent again unless the receiver has confirmed
    -- it; null: it was sent, and nobody has to confirm it
    due_at timestamptz,
    sent_at timestamptz,
    error text
) with (fillfactor = 50);
create index penstock_outbox_due on penstock_outbox (kind, due_at)
where due_at is not null;
create index penstock_outbox_sent on penstock_outbox (sent_at) where due_at is null;
