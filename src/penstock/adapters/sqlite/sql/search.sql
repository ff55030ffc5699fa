-- The word index of a dataset.

-- name: vocabulary
-- The last indexed change of a dataset, and its last change.
select fields, indexed.change_seq as known_seq, scanned, latest.change_seq as latest_seq,
    not exists (
        select 1 from penstock_import
        where dataset = name and status in ('planning', 'running')
    ) as is_at_rest
from (select name, change_seq from penstock_dataset where name = :dataset) as latest
left join penstock_vocabulary as indexed on indexed.dataset = name;

-- name: begin_vocabulary
insert into penstock_vocabulary (dataset, fields, change_seq, scanned)
select name, :fields, change_seq, '' from penstock_dataset where name = :dataset
on conflict (dataset) do update
set fields = excluded.fields, change_seq = excluded.change_seq, scanned = '';

-- name: forget_shapes
delete from penstock_shape
where word_id in (select id from penstock_word where dataset = :dataset);

-- name: forget_words
delete from penstock_word where dataset = :dataset;

-- name: note_scanned
update penstock_vocabulary set scanned = :scanned where dataset = :dataset;

-- name: note_words
update penstock_vocabulary set change_seq = :until where dataset = :dataset;

-- name: changed_keys
select seq, key from penstock_change
where dataset = :dataset and seq > :after
order by seq
limit :limit;

-- name: near_words
-- In this order: a shape has few words, but a dataset has many.
select word, rows from json_each(:shapes) as requested
cross join penstock_shape on shape = requested.value
cross join penstock_word on penstock_word.id = word_id
where dataset = :dataset and rows > 0
group by word_id;

-- name: words_from
select word, rows from penstock_word
where dataset = :dataset and word >= :start and word < :end and rows > 0
order by rows desc, word
limit :limit;
