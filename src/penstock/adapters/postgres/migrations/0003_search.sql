-- Words as they are compared, in any script: the rules are those of
-- penstock/domain/queries/words.py, and a test holds both together. Indexes are built
-- on them, so these functions never change: other rules get other functions.

do $do$
declare
    -- where letters of all scripts have a lower case, whatever the database's locale
    casing text := coalesce(
        (
            select quote_ident(collname) from pg_collation
            where collnamespace = 'pg_catalog'::regnamespace
                and collname in ('und-x-icu', 'C.utf8', 'C.UTF-8', 'en_US.utf8')
                and collencoding in (-1, pg_char_to_encoding('UTF8'))
            order by collname = 'und-x-icu' desc, collname
            limit 1
        ),
        '"default"'
    );
    -- what changes a letter without being one: accents, points, joiners, directions
    marks text := '\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2'
        '\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc'
        '\u06df-\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f'
        '\u202a-\u202e\u2060-\u2064\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff'
        '\U0001f3fb-\U0001f3ff\U000e0000-\U000e01ef';
    -- what stands between words
    gaps text := '\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7'
        '\u02b9-\u02df\u037e\u0387\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05c3\u05c6'
        '\u05f3\u05f4\u0600-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u0700-\u070d'
        '\u0964\u0965\u0970\u0f01-\u0f14\u0f3a-\u0f3d\u104a-\u104f\u1360-\u1368\u1680'
        '\u17d4-\u17db\u1800-\u180f\u2000-\u206f\u20a0-\u20cf\u2190-\u22ff'
        '\u2400-\u25ff\u27c0-\u2aff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030'
        '\u303d-\u303f\u309b\u309c\u30a0\u30fb\ufd3e\ufd3f\ufffc\ufffd';
    -- scripts that put no space between words, and signs that are words of their own
    unspaced text := '\u0e01-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3'
        '\u17dc-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u2300-\u23ff'
        '\u2600-\u27bf\u2b00-\u2bff\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f'
        '\u3031-\u303c\u3040-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f'
        '\u3190-\u4dbf\u4e00-\ua4cf\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff'
        '\U0001f000-\U0001faff\U00020000-\U000323af';
    fold text := $fold$
        -- the words of a text, with single spaces between them; it costs more than that,
        -- but so does an index of words, which is thought to be almost free: rows that
        -- are few for another reason are to be judged one by one
        create function penstock_fold(given text) returns text
        language plpgsql immutable strict parallel safe cost 20 as $body$
        declare
            folded text := given;
        begin
            if octet_length(folded) > length(folded) then
                folded := regexp_replace(normalize(folded, nfkd), '[{marks}]', '', 'g');
                folded := replace(replace(replace(replace(
                    lower(folded collate {casing}),
                    'ß', 'ss'), 'æ', 'ae'), 'œ', 'oe'), 'þ', 'th');
            end if;
            if octet_length(folded) = length(folded) then
                folded := lower(folded collate "C");
                folded := btrim(regexp_replace(folded, '[^a-z0-9]+', ' ', 'g'));
            else
                if folded ~ '[ıøłđðħŧςىیکة٠-٩۰-۹]' then
                    folded := translate(
                        folded, 'ıøłđðħŧςىیکة٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹',
                        'iolddhtσييكه01234567890123456789'
                    );
                end if;
                folded := normalize(folded, nfc);
                folded := regexp_replace(folded, '[{gaps}]+', ' ', 'g');
                if folded ~ '[{unspaced}]' then
                    folded := regexp_replace(folded, '([{unspaced}]+)', ' \1 ', 'g');
                    folded := regexp_replace(folded, ' +', ' ', 'g');
                end if;
                folded := btrim(folded);
            end if;
            -- nobody types more of one word, and no index takes what has no end
            if length(folded) > 500 then
                folded := regexp_replace(
                    folded, '([^ {unspaced}]{200})[^ {unspaced}]+', '\1', 'g'
                );
            end if;
            return folded;
        end
        $body$
    $fold$;
    tokens text := $tokens$
        -- under what a folded text is found: its words, and of a run without spaces
        -- each two signs that follow each other, and the last one alone
        create function penstock_tokens(folded text) returns text
        language plpgsql immutable strict parallel safe cost 5 as $body$
        begin
            if octet_length(folded) = length(folded)
                or folded !~ '[{unspaced}]'
            then
                return folded;
            end if;
            -- pairs from the first sign of each run on, and from the second
            return regexp_replace(folded, '([{unspaced}]{2})', '\1 ', 'g')
                || ' ' || regexp_replace(
                    regexp_replace(folded, '(^| )[{unspaced}]', '\1', 'g'),
                    '([{unspaced}]{2})', '\1 ', 'g'
                );
        end
        $body$
    $tokens$;
    statement text;
begin
    foreach statement in array array[fold, tokens] loop
        statement := replace(statement, '{casing}', casing);
        statement := replace(statement, '{marks}', marks);
        statement := replace(statement, '{gaps}', gaps);
        execute replace(statement, '{unspaced}', unspaced);
    end loop;
end
$do$;

-- What an index holds of a text; of a very long one only the beginning.
create function penstock_words(given text) returns tsvector
immutable strict parallel safe
return penstock_tokens(penstock_fold(left(given, 10000)))::tsvector;

-- What a word of so many letters has in common with those that are one letter away
-- from it (wrong, missing, too many, or swapped with its neighbour), as numbers: its
-- beginning, and that without each of its letters.
create function penstock_shapes(dataset text, word text, letters integer)
returns integer[]
immutable strict parallel safe
return array(
    select hashtext(
        dataset || ':' || letters
        || left(left(word, 7), at) || substr(left(word, 7), at + 2)
    )
    from generate_series(0, least(length(word), 7)) as at
);

-- The words that the rows of a dataset have, for typos and for suggestions. Runs of
-- scripts without spaces are not words, and neither are numbers.
create table penstock_word (
    dataset text not null,
    word text collate "C" not null,
    -- roughly how many rows have it
    rows bigint not null,
    primary key (dataset, word) include (rows)
);

create index penstock_word_shapes
on penstock_word using gin (penstock_shapes(dataset, word, length(word)))
where length(word) between 4 and 40 and word !~ '[0-9]';

-- How far the words of a dataset are known, and when they were last counted.
create table penstock_vocabulary (
    dataset text primary key,
    -- the fields whose words they are
    fields text not null,
    -- the last change whose words are among them
    change_seq bigint not null,
    -- the last change before all were counted
    counted_seq bigint not null
);
