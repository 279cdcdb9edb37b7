"""Sentences of CoNLL files, good and bad."""

import re
from pathlib import Path

import pytest

from pipeline.data import conll
from pipeline.data.conll import Sentence, looks_like_bio, read_sentences
from pipeline.data.lines import BadRow


def read(folder: Path, text: str | bytes, *, bio: bool = True) -> list[tuple[int, str] | tuple[int, str, str]]:
    """(line, words, tags) of a good sentence, (line, reason) of a bad one."""
    path = folder / "a.conll"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return [
        (found.line, found.reason)
        if isinstance(found, BadRow)
        else (found.line, " ".join(found.words), " ".join(found.tags))
        for found in read_sentences(path, bio=bio)
    ]


def test_sentences(tmp_path: Path) -> None:
    text = "# intent = X\nto\tO\nNew\tB-x\nYork\tI-x\n\n\n# a\n# b = c\nhi\tO\n"
    assert read(tmp_path, text) == [(2, "to New York", "O B-x I-x"), (9, "hi", "O")]
    assert isinstance(next(read_sentences(tmp_path / "a.conll", bio=True)), Sentence)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_four_columns_with_blanks_and_docstart(tmp_path: Path, end: str) -> None:
    lines = [
        "-DOCSTART- -X- -X- O",
        "",
        "EU NNP  B-NP B-ORG",
        "rejects VBZ B-VP O ",
        "",
        "-DOCSTART- -X- -X- O",
        "a b c O",
    ]
    assert read(tmp_path, end.join(lines)) == [(3, "EU rejects", "B-ORG O"), (7, "a", "O")]


def test_a_number_sign_with_a_tag_is_a_word(tmp_path: Path) -> None:
    assert read(tmp_path, "#\tO\n#tag\tB-x\n\na\tO\n#\tO\n") == [(1, "# #tag", "O B-x"), (4, "a #", "O O")]
    assert read(tmp_path, "a O\n\n# O\nb O\n\n# intent = X\nc O\n") == [
        *((1, "a", "O"), (3, "# b", "O O"), (7, "c", "O"))
    ]
    # Behind the first word a line without a tag is no comment.
    assert read(tmp_path, "a\tO\n# no comment\n") == [(2, "the line has a word without a tag.")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("word", "the line has a word without a tag."),
        ("word\t", "the line has a word without a tag."),
        ("word\tX\tO", "the line must have 2 columns, as the file's first; got 3."),
        ("two words\tO", "the word must be without white space, and not empty; got 'two words'."),
        ("\tO", "the word must be without white space, and not empty; got ''."),
        ("a\0b\tO", "the word must be without white space, and not empty; got 'a\\x00b'."),
        ("a\x0bb\tO", "the word must be without white space, and not empty; got 'a\\x0bb'."),
        ("word\tNOUN", "the tag must be O, B-x or I-x, as others of the data are; got 'NOUN'."),
        ("word\tB-", "the tag must be O, B-x or I-x, as others of the data are; got 'B-'."),
        ("word\tB-a\x01", "the tag must be without white space and control characters; got 'B-a\\x01'."),
    ],
)
def test_bad_lines_make_their_sentence_bad(tmp_path: Path, line: str, reason: str) -> None:
    assert read(tmp_path, f"a\tO\n\nb\tB-x\n{line}\n{line}\n\nc\tO\n") == [(1, "a", "O"), (4, reason), (7, "c", "O")]


def test_other_white_space_is_part_of_a_word(tmp_path: Path) -> None:
    assert read(tmp_path, "a O\n10\u00a0000 B-x\n\n\u2028\n\n\u2028 O\n") == [
        (1, "a 10\u00a0000", "O B-x"),
        (4, "the line has a word without a tag."),
        (6, "\u2028", "O"),
    ]


def test_not_utf8(tmp_path: Path) -> None:
    first, bad = read(tmp_path, b"a\tO\n\nb\tO\ncaf\xe9\tO\n")
    assert (first, bad[0]) == ((1, "a", "O"), 4)
    assert "got byte 0xe9 at offset 3" in bad[1]


def test_plain_tags_and_prefixes(tmp_path: Path) -> None:
    text = "a\tNOUN\nb\t$\n"
    assert read(tmp_path, text, bio=False) == [(1, "a b", "NOUN $")]
    assert not looks_like_bio([tmp_path / "a.conll"])
    assert read(tmp_path, "a\tS-x\nb\tU-x\nc\tE-x\nd\tL-x\n") == [(1, "a b c d", "S-x U-x E-x L-x")]
    assert read(tmp_path, "a\tO\n\nb\tI-x\n") == [(1, "a", "O"), (3, "b", "I-x")]
    assert looks_like_bio([tmp_path / "a.conll"])


def test_a_file_without_blank_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conll, "MAX_WORDS", 5)
    assert read(tmp_path, "a\tO\n" * 6 + "\n" + "b\tO\n" * 5) == [
        (1, "a sentence of 6 words; 5 are allowed. Put a blank line behind each sentence."),
        (8, "b b b b b", "O O O O O"),
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n", "-DOCSTART- O\n"])
def test_nothing_to_read(tmp_path: Path, text: str) -> None:
    message = f"{tmp_path / 'a.conll'} has no line with a word and a tag. Is it empty, or of another format?"
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, text)
