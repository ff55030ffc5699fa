"""Words are compared whatever their script, case and accents."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.queries.words import (
    Words,
    as_written,
    fold,
    is_forgiven,
    is_one_edit_away,
    near_shapes,
    shapes,
    text_tokens,
    tokens,
)


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
    terms = Words(text).terms
    found = set(text_tokens(fold(text)))

    assert all(term.is_in(found) for term in terms)


def test_a_run_is_found_by_each_part_of_it():
    found = set(tokens("東京都庁"))

    assert found == {"東京", "京都", "都庁", "庁"}
    for part in ("東", "庁", "京都", "東京都庁", "都庁"):
        (term,) = Words(part).terms
        assert term.is_in(found), part
    assert not Words("東都").terms[0].is_in(found)


def test_only_the_last_word_is_taken_as_a_beginning():
    first, last = Words("char sta").terms

    assert (first.prefix, last.prefix) == (None, "sta")
    assert not first.is_in({"charging"})
    assert last.is_in({"station"})
    assert not last.whole.is_in({"station"})


def test_a_word_that_comes_twice_is_asked_for_once():
    assert [term.word for term in Words("nord NORD süd nord").terms] == ["nord", "sud"]


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
        assert shapes(word, len(word)) & near_shapes(other)


def test_short_words_numbers_and_runs_are_taken_as_they_are():
    assert [w for w in ("bern", "berlin", "a1234", "東京都庁前") if is_forgiven(w)] == [
        "berlin"
    ]


def test_a_word_is_told_as_it_is_written():
    assert as_written("Große Straße 1", "strasse") == "Straße"
    assert as_written("Große Straße 1", "weg") is None
