-- The term dictionary of a dataset.

-- name: near_words
-- The dataset is part of each shape. It is compared in a way that no index can use, else
-- the server would read all words of the dataset.
select requested.word as requested, near.word, near.rows
from unnest(%(words)s::text[]) as requested (word)
cross join lateral (
    select word, rows from penstock_word
    where penstock_shapes(dataset, word, length(word)) && (
            penstock_shapes(%(dataset)s::text, requested.word, length(requested.word) - 1)
            || penstock_shapes(%(dataset)s::text, requested.word, length(requested.word))
            || penstock_shapes(%(dataset)s::text, requested.word, length(requested.word) + 1)
        )
        and length(word) between 4 and 40 and word !~ '[0-9]'
        and dataset || '' = %(dataset)s::text
    order by rows desc
    limit 1000
) as near;

-- name: words_from
select word, rows from penstock_word
where dataset = %(dataset)s and word >= %(start)s and word < %(end)s
order by rows desc, word
limit %(limit)s;

-- name: words_begun
-- How many rows have words with a prefix; for very many words, all rows. And the words,
-- if they are few and the dictionary is complete.
with matching as materialized (
    select word, rows from penstock_word
    where dataset = %(dataset)s and word >= %(start)s and word < %(end)s
    limit 5000
)
select
    case when count(*) < 5000 then coalesce(sum(rows), 0) else 1e12 end
        ::double precision as rows,
    case
        when count(*) <= %(few)s and exists (
            select 1 from penstock_vocabulary as vocabulary
            join penstock_dataset as dataset on dataset.name = vocabulary.dataset
            where dataset.name = %(dataset)s and vocabulary.fields = %(fields)s
                and vocabulary.change_seq = dataset.change_seq
        )
        then array_agg(word order by word)
    end as words
from matching;

-- name: valid_indexes
select relname::text as name
from pg_index join pg_class on pg_class.oid = indexrelid
where indisvalid and indrelid
    = to_regclass(quote_ident(current_schema()) || '.' || quote_ident(%(dataset)s));

-- name: vocabulary
-- How far the dictionary of a dataset is, and how far its rows are.
select vocabulary.fields, vocabulary.change_seq as known_seq, counted_seq,
    penstock_dataset.change_seq as latest_seq,
    (
        select coalesce(sum(greatest(reltuples, 0)), 0)
        from (
            select to_regclass(
                quote_ident(current_schema()) || '.' || quote_ident(%(dataset)s)
            ) as id
        ) as named
        -- a table without partitions has no tree
        cross join lateral (
            select named.id union select relid from pg_partition_tree(named.id)
        ) as part
        join pg_class on pg_class.oid = part.id
        where relkind = 'r'
    ) as rows,
    not exists (
        select 1 from penstock_import
        where dataset = name and status in ('planning', 'running')
    ) as is_at_rest
from penstock_dataset
left join penstock_vocabulary as vocabulary on vocabulary.dataset = name
where name = %(dataset)s;

-- name: hold_vocabulary
select pg_try_advisory_xact_lock(
    hashtextextended(current_schema(), %(number)s)
) as is_locked;

-- name: begin_counting
-- The words of many rows are compared with the whole dictionary.
select set_config('enable_hashjoin', 'on', true);

-- name: note_counting
insert into penstock_vocabulary (dataset, fields, change_seq, counted_seq)
select name, %(fields)s, change_seq, change_seq from penstock_dataset
where name = %(dataset)s
on conflict (dataset) do update
set fields = excluded.fields, change_seq = excluded.change_seq,
    counted_seq = excluded.counted_seq;

-- name: count_words
-- Not words: runs of scripts without spaces, and numbers.
with fresh as materialized (
    select word collate "C" as word, ndoc as rows from ts_stat(%(rows)s)
    where word ~ '[^0-9]' and penstock_tokens(word) = word
), removed as (
    delete from penstock_word as stored
    where dataset = %(dataset)s
        and not exists (select 1 from fresh where fresh.word = stored.word)
)
insert into penstock_word (dataset, word, rows)
select %(dataset)s, word, rows from fresh order by word
on conflict (dataset, word) do update set rows = excluded.rows
where penstock_word.rows <> excluded.rows;

-- name: unknown_pages
select last_seq from penstock_change_page
where dataset = %(dataset)s and last_seq > (
    select change_seq from penstock_vocabulary where dataset = %(dataset)s
)
order by last_seq
limit %(pages)s;

-- name: note_words
update penstock_vocabulary set change_seq = %(until)s where dataset = %(dataset)s;
