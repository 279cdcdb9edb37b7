"""Labels as they are met: cleaned, numbered, told."""

import re

import pytest

from pipeline.data import labels
from pipeline.data.labels import NONE, LabelBook, TooManyLabelsError, sort_labels


def test_numbers_follow_arrival() -> None:
    book = LabelBook()
    assert [book.number(label) for label in ("b", "a", "b", "ä")] == [0, 1, 0, 2]
    assert book.names == ["b", "a", "ä"]
    assert book.notes() == []


def test_white_space_is_cleaned_and_told() -> None:
    book = LabelBook()
    assert [book.number(label) for label in ("a b", " a b", "a \t b\n", "a\0b", "c ")] == [0, 0, 0, 0, 1]
    assert book.notes() == [
        "labels whose white space was cleaned: ' a b', 'a \\t b\\n', 'a\\x00b', 'c '; 5 spellings are 2 labels."
    ]


def test_case_is_told_and_not_merged() -> None:
    book = LabelBook()
    assert [book.number(label) for label in ("Spam", "spam", "ham")] == [0, 1, 2]
    assert book.notes() == ["labels that differ in case only stay different: 'Spam' and 'spam'. Is that meant?"]


@pytest.mark.parametrize(
    ("spellings", "shown"),
    [
        (("caf\u00e9", "cafe\u0301"), r"'cafe\u0301' and 'caf\xe9'"),
        (("sp\u200bam", "Spam"), r"'Spam' and 'sp\u200bam'"),
        (("e\u200d\u0301", "\u00c9"), r"'e\u200d\u0301' and '\xc9'"),
        (("\u2764", "\u2764\ufe0f"), r"'\u2764' and '\u2764\ufe0f'"),
        (("a b", "a\u00a0b", "\ufeffa b"), r"'a b' and 'a\xa0b' and '\ufeffa b'"),
    ],
)
def test_what_can_not_be_seen_is_told_and_not_merged(spellings: tuple[str, ...], shown: str) -> None:
    book = LabelBook()
    assert [book.number(label) for label in spellings] == list(range(len(spellings)))
    assert book.notes() == [f"labels that differ in what can't be seen stay different: {shown}. Is that meant?"]


def test_accents_can_be_seen() -> None:
    book = LabelBook()
    for label in ("cafe", "caf\u00e9", "ca fe", "\u2764"):
        book.number(label)
    assert book.notes() == []


def test_none_label() -> None:
    book = LabelBook(" out of  scope ")
    assert not book.none_seen
    assert [book.number(label) for label in ("a", "out of scope", "out  of scope", "b")] == [0, NONE, NONE, 1]
    assert book.none_seen
    assert book.names == ["a", "b"]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", "the label is empty."),
        (" \t\0", "the label is empty."),
        ("a\x01", "the label 'a\\x01' holds the control character U+0001."),
        ("a\x7f", "holds the control character U+007F."),
        ("a\u2028b", "holds the control character U+2028."),
        ("a" * 1001, "the label must have at most 1,000 characters; got 1,001."),
    ],
)
def test_refuses(label: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LabelBook().number(label)


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABELS", 3)
    book = LabelBook()
    for number in range(3):
        book.number(str(number))
    with pytest.raises(TooManyLabelsError):
        book.number("one more")
    assert book.number("2") == 2


def test_order() -> None:
    assert sort_labels(["10", "9", "-1", "09"]) == ["-1", "09", "9", "10"]
    assert sort_labels(["10", "9", "a"]) == ["10", "9", "a"]
    assert sort_labels(["1.0", "10", "9"]) == ["1.0", "10", "9"]
