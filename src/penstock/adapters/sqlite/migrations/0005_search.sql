-- The words that the rows of a dataset have, for typos and for suggestions. Runs of
-- scripts without spaces are not words, and neither are numbers.
create table penstock_word (
    id integer primary key,
    dataset text not null,
    word text not null,
    -- how many rows have it
    rows integer not null,
    unique (dataset, word)
) strict;

-- What a word has in common with those that are one letter away from it, as numbers.
create table penstock_shape (
    shape integer not null,
    word_id integer not null,
    primary key (shape, word_id)
) strict, without rowid;

-- How far the words of a dataset are known.
create table penstock_vocabulary (
    dataset text primary key,
    -- the fields whose words they are
    fields text not null,
    -- the last change whose words are among them
    change_seq integer not null,
    -- the key up to which the first pass over all rows has come; null when it is done
    scanned text
) strict;
