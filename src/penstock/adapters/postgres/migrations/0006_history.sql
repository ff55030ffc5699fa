-- A random tag beside each number of a change and of a generation: after a database was
-- put back to an older state, the numbers are used again, and the tags are not.
alter table penstock_dataset
    add column generation_tag bigint not null
        default ('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint,
    add column change_tag bigint not null
        default ('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint;

-- One tag for all changes that are stored already: so no row has to be written anew.
do $$
declare
    tag bigint := ('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint;
begin
    update penstock_dataset set change_tag = tag;
    execute format(
        'alter table penstock_change_page add column tag bigint not null default %s', tag
    );
end $$;
alter table penstock_change_page alter column tag
    set default ('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint;
