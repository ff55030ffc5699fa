"""Words are compared whatever their script, case and accents."""

import random
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.domain.search.suggestions import complete_text
from penstock.domain.search.tokenizer import (
    SearchTerms,
    allows_typos,
    deletion_keys,
    find_as_written,
    fold,
    is_one_edit_away,
    near_deletion_keys,
    text_tokens,
    word_tokens,
    written_words,
)

UNASSIGNED = ("Cn", "Co", "Cs")
ASSIGNED = [
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) not in UNASSIGNED
]


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("  Berlin-Mitte (Süd), 12a ", "berlin mitte sud 12a"),
        ("O'Neill & Söhne", "o neill sohne"),
        ("STRASSE Straße ẞ", "strasse strasse ss"),
        ("ΟΔΟΣ οδός", "οδοσ οδοσ"),
        ("東京都iPhone14駅", "東京都 iphone14 駅"),
        ("カﾌｪ がガ", "カフェ がガ"),
        ("दिल्ली", "दिल्ली"),
        ("👩🏽‍🔧 ok", "👩🔧 ok"),
        ("٣ ۴", "3 4"),
        ("soft\u00adhyphen", "softhyphen"),
        ("!?", ""),
    ],
    ids=range(11),
)
def test_texts_are_folded(text, folded):
    assert fold(text) == folded


@given(st.text())
def test_what_is_folded_stays_as_it_is(text):
    folded = fold(text)

    assert fold(folded) == folded
    assert folded == " ".join(folded.split())


@given(st.text(alphabet="abcäßéøя東京กา 1'", max_size=30))
def test_the_words_of_a_text_are_found_in_it(text):
    terms = SearchTerms(text).terms
    found = set(text_tokens(fold(text)))

    assert all(term.is_in(found) for term in terms)


def test_a_run_is_found_by_each_part_of_it():
    found = set(word_tokens("東京都庁"))

    assert found == {"東京", "京都", "都庁", "庁"}
    for part in ("東", "庁", "京都", "東京都庁", "都庁"):
        (term,) = SearchTerms(part).terms
        assert term.is_in(found), part
    assert not SearchTerms("東都").terms[0].is_in(found)


def test_only_the_last_word_is_taken_as_a_beginning():
    first, last = SearchTerms("char sta").terms

    assert (first.prefix, last.prefix) == (None, "sta")
    assert not first.is_in({"charging"})
    assert last.is_in({"station"})
    assert not last.whole.is_in({"station"})


def test_a_word_that_comes_twice_is_requested_once():
    assert [term.word for term in SearchTerms("nord NORD süd nord").terms] == [
        "sud",
        "nord",
    ]


def test_the_last_word_is_unfinished_also_if_it_came_before():
    *_, last = SearchTerms("nord süd nord").terms

    assert (last.word, last.prefix) == ("nord", "nord")
    assert complete_text(SearchTerms("nord süd nord"), "Nordost") == "nord süd Nordost"


@pytest.mark.parametrize(
    ("one", "other", "is_near"),
    [
        *(("berlin", "berln", True), ("berlin", "berlinn", True)),
        *(("berlin", "merlin", True), ("berlin", "berlni", True)),
        *(("berlin", "berlin", False), ("berlin", "brelni", False)),
        *(("berlin", "bern", False), ("ab", "ba", True), ("abc", "cab", False)),
    ],
)
def test_one_letter_may_be_wrong_missing_too_many_or_swapped(one, other, is_near):
    assert is_one_edit_away(one, other) is is_near
    assert is_one_edit_away(other, one) is is_near


@given(st.text("abcя", min_size=5, max_size=12), st.randoms(use_true_random=False))
def test_words_a_letter_apart_have_a_shape_in_common(word, dice: random.Random):
    at, letter = dice.randrange(len(word)), dice.choice("abcdя")
    for other in (
        word[:at] + letter + word[at:],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    ):
        assert other == word or is_one_edit_away(word, other)
        assert deletion_keys(word, len(word)) & near_deletion_keys(other)


def test_short_words_numbers_and_runs_are_taken_as_they_are():
    assert [
        w for w in ("bern", "berlin", "a1234", "東京都庁前") if allows_typos(w)
    ] == ["berlin"]


def test_a_word_is_reported_as_it_is_written():
    assert find_as_written("Große Straße 1", "strasse") == "Straße"
    assert find_as_written("Große Straße 1", "weg") is None


def refolded(text: str) -> list[str]:
    return [
        word for _, written in written_words(text) for word in fold(written).split()
    ]


def test_every_character_is_judged_by_what_it_is_folded_to():
    # in lines, as a line costs less than a character
    for start in range(0, len(ASSIGNED), 100):
        line = " ".join(f"x{each}y" for each in ASSIGNED[start : start + 100])
        assert refolded(line) == fold(line).split()


def test_every_character_that_is_folded_to_a_word_can_be_completed():
    decomposed = [
        each for each in ASSIGNED if unicodedata.normalize("NFKD", each) != each
    ]

    assert len(decomposed) > 10_000
    for each in decomposed:
        words = SearchTerms(f"be {each}{each}")
        if fold(each):
            assert (
                fold(complete_text(words, "z")).split()[:-1]
                == words.folded.split()[:-1]
            )


@given(st.text(max_size=30))
@example("²²")
@example("ⓑⓔ")
@example("¼")
@example("foo \uff01")
@example("\u0301a")
def test_a_text_has_the_words_that_its_folded_form_has(text):
    assert refolded(text) == fold(text).split()
    for start, written in written_words(text):
        assert text[start:].startswith(written)


@pytest.mark.parametrize(
    ("typed", "last", "whole"),
    [
        ("ªn", "Ankara", "Ankara"),
        ("rue ²²", "22nd", "rue 22nd"),
        ("foo \uff01", "Food", "Food"),
        ("¼", "4th", "1 4th"),
        ("ﾄｳ", "トウ京", "トウ京"),
    ],
)
def test_what_was_typed_is_completed_as_it_is_folded(typed, last, whole):
    assert complete_text(SearchTerms(typed), last) == whole


def test_a_word_is_cut_out_of_a_text_where_it_is_folded_apart():
    assert find_as_written("Foo\uff01Bar", "bar") == "Bar"
    assert find_as_written("Nº ²²a", "22a") == "²²a"
