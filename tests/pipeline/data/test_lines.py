"""Lines of files in every state: ends, marks, encodings, packed, damaged, endless."""

import gzip
import os
import re
from pathlib import Path

import pytest

from pipeline.data import lines
from pipeline.data.lines import Line, file_stamp, mark_notes, read_lines, reason_of


def read(folder: Path, data: bytes, name: str = "a.txt") -> list[Line]:
    (folder / name).write_bytes(data)
    return list(read_lines(folder / name))


def test_every_line_end(tmp_path: Path) -> None:
    assert read(tmp_path, b"a\nb\r\nc\rd\n\ne") == [
        *(Line(1, "a\n"), Line(2, "b\r\n"), Line(3, "c\r"), Line(4, "d\n"), Line(5, "\n"), Line(6, "e"))
    ]
    assert read(tmp_path, b"") == []


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_chunks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    data = "ä\r\nbc\r\r\nd\n\n\rlast €".encode()
    whole = read(tmp_path, data)
    monkeypatch.setattr(lines, "_CHUNK_BYTES", chunk)
    assert read(tmp_path, data) == whole
    assert "".join(line.text for line in whole).encode() == data


def test_other_separators_do_not_end_a_line(tmp_path: Path) -> None:
    text = "a\x0b\x0c\x1c\x85\u2028\u2029b\0c"
    assert read(tmp_path, text.encode()) == [Line(1, text)]


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfa\n\xef\xbb\xbfb") == [Line(1, "a\n"), Line(2, "\ufeffb")]
    assert mark_notes(tmp_path / "a.txt") == ["a.txt: a byte order mark at the start was dropped."]
    (tmp_path / "b.txt").write_bytes(b"a")
    assert mark_notes(tmp_path / "b.txt") == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["text", "", "a\0b"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str, text: str) -> None:
    name = encoding[:6].upper()
    wanted = f"a.txt must be UTF-8; it begins like {name}. Convert it, with `iconv -f {name} -t UTF-8` for example."
    with pytest.raises(ValueError, match=re.escape(wanted)):
        read(tmp_path, f"\ufeff{text}".encode(encoding))


def test_a_line_that_is_not_utf8_says_which_byte(tmp_path: Path) -> None:
    good, bad, last = read(tmp_path, b"one\ncaf\xe9\nthree")
    assert (good, last) == (Line(1, "one\n"), Line(3, "three"))
    assert bad.problem == (
        "text must be valid UTF-8; got byte 0xe9 at offset 3 (invalid continuation byte). "
        "Convert the text to UTF-8 first."
    )


def test_an_endless_line_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 30)
    for end in (b"\n", b"\r\n", b"\r"):
        first, long, last = read(tmp_path, b"a" + end + b"x" * 1000 + end + b"b")
        assert (first.text[0], last) == ("a", Line(3, "b"))
        assert long.problem.startswith("the line is longer than")
        assert len(long.text) == 1
    assert read(tmp_path, b"x" * 1000)[0].problem


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(b"a\nb"), "a.csv.GZ") == [Line(1, "a\n"), Line(2, "b")]


@pytest.mark.parametrize(
    "data", [b"plain", gzip.compress(b"x" * 5000, mtime=0)[:-9], gzip.compress(b"x")[:5]], ids=["plain", "cut", "head"]
)
def test_damaged_packed_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"a\.csv\.gz can't be read: "):
        read(tmp_path, data, "a.csv.gz")


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    for read_it in (mark_notes, file_stamp, lambda path: list(read_lines(path))):
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'none'} can't be read: ")):
            read_it(tmp_path / "none")


def test_a_stamp_tells_another_file_of_the_same_bytes_and_time(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    for made in (path, other):
        made.write_bytes(b"text")
        os.utime(made, ns=(5, 7))
    before = file_stamp(path)
    assert before == file_stamp(path)
    assert before[:2] == (4, 7)
    other.replace(path)
    assert file_stamp(path) != before


def test_a_reason_has_no_full_stop() -> None:
    assert reason_of(OSError("two.\nlines. \n")) == "two. lines"
    assert reason_of(FileNotFoundError(2, "No such file")) == "No such file"
