"""Texts on disk that read like a list."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.data.store import Ragged, Sentences, TextWriter

TEXTS = ["one two", "", "drei €", "\0\n\u2028", "😀 five"]


def write(folder: Path, texts: list[str]) -> TextWriter:
    writer = TextWriter(folder)
    for text in texts:
        writer.add(text)
    return writer


def test_texts(tmp_path: Path) -> None:
    texts = write(tmp_path, TEXTS).texts()
    assert list(texts) == TEXTS
    assert [texts[index] for index in (0, 4, -1, -5)] == ["one two", "😀 five", "😀 five", "one two"]
    assert len(texts) == 5
    chosen = texts.choose(np.array([4, 1, 1, 0]))
    assert list(chosen) == ["😀 five", "", "", "one two"]
    assert list(chosen[1:][::2]) == ["", "one two"]
    assert "drei €" in texts
    for index in (5, -6):
        with pytest.raises(IndexError):
            texts[index]


def test_two_stores_in_one_folder_and_empty_ones(tmp_path: Path) -> None:
    first, second, empty, none = (write(tmp_path, texts) for texts in (["a"], ["b"], ["", ""], []))
    assert [list(writer.texts()) for writer in (first, second, empty, none)] == [["a"], ["b"], ["", ""], []]


def test_sentences(tmp_path: Path) -> None:
    texts = write(tmp_path, ["a b\u00a0c", "d"]).texts()
    sentences = Sentences(texts, np.array([1, 0]))
    assert list(sentences) == [["d"], ["a", "b\u00a0c"]]
    assert list(sentences[1:]) == [["a", "b\u00a0c"]]
    assert sentences[-1] == ["a", "b\u00a0c"]


def test_ragged() -> None:
    ragged = Ragged(np.array([5, 6, 7, 8], np.int32), np.array([2, 2, 4]), np.array([2, 1, 0]))
    assert [row.tolist() for row in ragged] == [[7, 8], [], [5, 6]]
    assert ragged[0].dtype == np.int64
    assert [row.tolist() for row in ragged[1:]] == [[], [5, 6]]
