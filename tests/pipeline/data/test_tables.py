"""Rows of CSV, TSV, JSON lines and Parquet files, good and bad."""

import csv
import datetime
import decimal
import gzip
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline.data import tables
from pipeline.data.lines import BadRow
from pipeline.data.tables import MAX_CELL_CHARACTERS, Row, open_table

COLUMNS = ["label", "text"]


def table(folder: Path, name: str, data: bytes | str) -> tables.Table:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return open_table(path)


def read(folder: Path, name: str, data: bytes | str) -> list[tuple[int, ...] | tuple[Any, ...]]:
    """(line, label, text) of a good row, (line, reason) of a bad one."""
    return [
        (row.line, row.reason) if isinstance(row, BadRow) else (row.line, row.values["label"], row.values["text"])
        for row in table(folder, name, data).rows(COLUMNS)
    ]


def swallowed(lines: int) -> str:
    return (
        f"a quotation mark is missing: a quoted field goes on over the next {lines} lines, which look like rows. "
        "Close it, or save the data as .jsonl if they are text."
    )


def surely_text(text: str, delimiter: str) -> bool:
    """Whether no line of a text looks like a row, which has two cells with something in them."""
    return not re.search(f"[^{delimiter}\n\r]{delimiter}[^{delimiter}\n\r]", text)


class TestCsv:
    def test_rows(self, tmp_path: Path) -> None:
        data = 'id,label,text\n1,a,"one, two"\n2,b,"say ""hi"""\n\n3,c,"two\nlines"\n4,d,\n'
        assert read(tmp_path, "a.csv", data) == [
            *((2, "a", "one, two"), (3, "b", 'say "hi"'), (5, "c", "two\nlines"), (7, "d", "")),
        ]
        assert table(tmp_path, "a.csv", data).columns == ["id", "label", "text"]
        assert table(tmp_path, "a.csv", data).notes == []

    def test_only_wanted_columns(self, tmp_path: Path) -> None:
        (row,) = table(tmp_path, "a.csv", "id,label,text\n1,a,b\n").rows(["text"])
        assert row == Row(2, {"text": "b"})

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_line_ends(self, tmp_path: Path, end: str) -> None:
        assert read(tmp_path, "a.csv", end.join(["label,text", "a,b", 'c,"d', 'e"', "f,g"])) == [
            *((2, "a", "b"), (3, "c", f"d{end}e"), (5, "f", "g")),
        ]

    def test_byte_order_mark_is_told(self, tmp_path: Path) -> None:
        made = table(tmp_path, "a.csv", b"\xef\xbb\xbflabel,text\na,b\n")
        assert made.columns == COLUMNS
        assert made.notes == ["a.csv: a byte order mark at the start was dropped."]

    def test_nul_is_text(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.csv", 'label,text\na,b\0c\nd,"\0"\n') == [(2, "a", "b\0c"), (3, "d", "\0")]

    def test_wrong_number_of_fields(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.csv", "label,text\na\na,b,c\na,b\n") == [
            (2, "the row must have 2 fields, as the header; got 1."),
            (3, "the row must have 2 fields, as the header; got 3. Quote a text that holds a comma."),
            (4, "a", "b"),
        ]

    def test_bytes_that_are_not_utf8(self, tmp_path: Path) -> None:
        first, bad, multi, last = read(tmp_path, "a.csv", b'label,text\na,b\nc,caf\xe9\nd,"x\ny\xff"\ne,f\n')
        assert (first, last) == ((2, "a", "b"), (6, "e", "f"))
        assert bad[0] == 3
        assert "got byte 0xe9 at offset 5" in bad[1]
        assert multi[0] == 4
        assert "got byte 0xff at offset 1" in multi[1]

    def test_an_unclosed_quote_costs_its_row_only(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.csv", 'label,text\na,"open\nb,two\nc,three\n') == [
            *((2, "a quotation mark is never closed."), (3, "b", "two"), (4, "c", "three")),
        ]
        assert read(tmp_path, "a.csv", 'label,text\na,"open\nb,two\nc,"three"\nd,four\n') == [
            (
                2,
                "a quoted field goes on behind its closing quotation mark, 2 lines on. "
                "Double the marks inside a field.",
            ),
            *((3, "b", "two"), (4, "c", "three"), (5, "d", "four")),
        ]

    def test_an_unclosed_quote_in_a_long_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "MAX_CELL_CHARACTERS", 1000)
        rows = read(tmp_path, "a.csv", 'label,text\na,"open\n' + "b,row\n" * 5000)
        assert rows[0] == (2, "a cell is longer than 1,000,000 characters. Is a quotation mark unclosed?")
        assert rows[1:] == [(line, "b", "row") for line in range(3, 5003)]

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_a_missing_mark_costs_its_row_only(self, tmp_path: Path, end: str) -> None:
        """Without a sign, as the next mark, far behind, would close the field, and the record has the right width."""
        good = [f"text {number},a" for number in range(200)]
        data = ["text,label", *good[:100], '"start of quote,A', *good[100:150], 'end of quote",B', *good[150:]]
        rows = read(tmp_path, "a.csv", end.join(data) + end)
        assert len(rows) == 202
        assert rows[100] == (102, swallowed(50))
        assert [row[2] for row in rows if len(row) == 3] == [
            *(f"text {number}" for number in range(150)),
            'end of quote"',
            *(f"text {number}" for number in range(150, 200)),
        ]

    def test_a_missing_mark_among_rows_that_are_bad_too(self, tmp_path: Path) -> None:
        lines = ["label,text", 'a,"start', *["b,row"] * 20, "one, two, three", 'c,""', *["b,row"] * 20, 'end",x', "d,e"]
        rows = read(tmp_path, "a.csv", "\n".join(lines).encode().replace(b"two", b"tw\xf6"))
        assert rows[0] == (2, swallowed(42))
        assert [row[0] for row in rows] == list(range(2, 47))
        assert (rows[21][0], rows[21][1][:24], rows[22]) == (23, "text must be valid UTF-8", (24, "c", ""))

    def test_a_text_of_many_lines_is_a_text(self, tmp_path: Path) -> None:
        texts = [
            "Dear all,\nyes, I saw it\nno, I did not\nwell, who knows\nso, bye\n",
            "list:\nmilk,\neggs,\nbread,\nbutter\n",
            "see:\n    f(a,b)\n    g(a,b)\n    h(a,b)\n    i(a,b)\n",
            "only two:\na,b\nc,d\n",
            "with a break\na,b\nc,d\n\ne,f\n",
            "three fields\na,b,c\na,b,c\na,b,c\nend",
            'said ""a,b""\n' + '""a"",b"",""\n' * 5,
        ]
        data = "label,text\n" + "".join(f'x,"{text}"\n' for text in texts)
        assert [row[1:] for row in read(tmp_path, "a.csv", data)] == [("x", text.replace('""', '"')) for text in texts]

    def test_text_behind_a_closing_mark(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.csv", 'label,text\na,"b" c\nd,e\n') == [
            (2, "a quoted field goes on behind its closing quotation mark. Double the marks inside a field."),
            (3, "d", "e"),
        ]

    def test_a_cell_of_ten_megabytes(self, tmp_path: Path) -> None:
        reason = "a cell is longer than 1,000,000 characters. Is a quotation mark unclosed?"
        for cell in ("x" * 10_000_000, '"' + "x" * 10_000_000 + '"'):
            assert read(tmp_path, "a.csv", f"label,text\na,{cell}\nb,c\n") == [(2, reason), (3, "b", "c")]
        longest = "x" * MAX_CELL_CHARACTERS
        assert read(tmp_path, "a.csv", f"label,text\na,{longest}\n") == [(2, "a", longest)]

    def test_a_row_of_endless_many_fields(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "_MAX_ROW_CHARACTERS", 1000)
        rows = read(tmp_path, "a.csv", "label,text\n" + 'a,"\n' + 'x","\n' * 1000 + "b,c\n")
        assert rows[0] == (2, "a cell is longer than 1,000,000 characters. Is a quotation mark unclosed?")
        assert rows[-1] == (1003, "b", "c")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ("", "a.csv is empty. It must have a header and rows."),
            ("\n\n", "a.csv is empty. It must have a header and rows."),
            ("label,text,label\n", "a.csv: the header names 'label' twice. Rename or remove one."),
            (
                ",label,text\n0,a,b\n",
                "a.csv: column 1 of the header has no name. Name it "
                "(pandas writes such a column unless it is told index=False).",
            ),
            (
                "label|text\na|b\n",
                "a.csv has the single column 'label|text', so it is separated by something else than ','. "
                "Save it with commas as .csv or with tabs as .tsv.",
            ),
            (b"label,t\xe4xt\n", "a.csv, line 1, the header: text must be valid UTF-8; got byte 0xe4 at offset 7"),
            ('label,"text\n', "a.csv, line 1, the header: a quotation mark is never closed."),
            ("label,text\n".encode("utf-16-le"), "a.csv: the header holds U+0000, as in UTF-16 or UTF-32. Convert"),
            ("label,text\n".encode("utf-16"), "a.csv must be UTF-8; it begins like UTF-16."),
            (
                'label,"text\n' + "a,row\n" * 3 + 'b,"end"\n',
                "a.csv, line 1, the header: a quoted field goes on behind its closing quotation mark, 4 lines on.",
            ),
            (
                'label,"text\n' + "a,row\n" * 3 + 'end",b\n',
                "a.csv, line 1, the header: a quotation mark is missing: a quoted field goes on over the next 3 lines",
            ),
        ],
    )
    def test_refused_as_a_whole(self, tmp_path: Path, data: bytes | str, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            table(tmp_path, "a.csv", data)

    def test_packed(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.csv.gz", gzip.compress(b"label,text\na,b\n")) == [(2, "a", "b")]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(st.tuples(st.just("a"), st.text(alphabet='ab,"\t\n\r\0é \u2028', max_size=12)), min_size=1, max_size=6)
    )
    def test_reads_what_csv_writes(self, tmp_path: Path, rows: list[tuple[str, str]]) -> None:
        """The default dialect of Python, which is Excel's; every row comes back, at its line."""
        made = io.StringIO(newline="")
        rows = [(label, text) for label, text in rows if surely_text(text, ",") or len(text.splitlines()) < 5]
        csv.writer(made).writerows([COLUMNS, *rows])
        read_rows = read(tmp_path, "a.csv", made.getvalue())
        assert [row[1:] for row in read_rows] == rows


class TestTsv:
    def test_marks_are_text_where_quoting_does_not_explain_them(self, tmp_path: Path) -> None:
        data = 'label\ttext\na\t"hello" he said\nb\t"unbalanced\nc\t"whole"\n'
        assert read(tmp_path, "a.tsv", data) == [
            *((2, "a", '"hello" he said'), (3, "b", '"unbalanced'), (4, "c", '"whole"')),
        ]
        assert table(tmp_path, "a.tsv", data).notes == [
            "a.tsv: quotation marks are text, as quoting doesn't explain those of line 2."
        ]

    def test_an_unbalanced_mark_alone(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.tsv", 'label\ttext\na\t"open\nb\tc\n') == [(2, "a", '"open'), (3, "b", "c")]

    def test_quoted_where_every_mark_is_explained(self, tmp_path: Path) -> None:
        data = 'label\ttext\na\t"a\ttab"\nb\t"say ""hi"""\nc\t"two\nlines"\nd\tplain\n'
        assert read(tmp_path, "a.TAB", data) == [
            *((2, "a", "a\ttab"), (3, "b", 'say "hi"'), (4, "c", "two\nlines"), (6, "d", "plain")),
        ]
        assert table(tmp_path, "a.TAB", data).notes == [
            "a.TAB: fields are quoted, which explains every quotation mark."
        ]

    def test_commas_are_text(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a.tsv", "label\ttext\na\tb, c\na\tb\tc\n") == [
            (2, "a", "b, c"),
            (3, "the row must have 2 fields, as the header; got 3."),
        ]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(st.tuples(st.just("a"), st.text(alphabet='ab"\té \n', max_size=12)), min_size=1, max_size=6),
    )
    def test_reads_what_csv_writes(self, tmp_path: Path, rows: list[tuple[str, str]]) -> None:
        made = io.StringIO(newline="")
        rows = [(label, text) for label, text in rows if surely_text(text, "\t") or len(text.splitlines()) < 5]
        csv.writer(made, delimiter="\t", lineterminator="\n").writerows([COLUMNS, *rows])
        rows_that_look_alone = any(all(part.count("\t") == 1 for part in text.split("\n")[1:]) for _, text in rows)
        if not rows_that_look_alone or not any("\n" in text for _, text in rows):
            assert [row[1:] for row in read(tmp_path, "a.tsv", made.getvalue())] == rows


class TestJsonLines:
    def test_rows(self, tmp_path: Path) -> None:
        rows = [{"label": "a", "text": "ä \u2028 \0 \n", "more": [1]}, {"text": "", "label": "b"}]
        data = "\n\n".join(json.dumps(row, ensure_ascii=number == 0) for number, row in enumerate(rows))
        assert read(tmp_path, "a.jsonl", data) == [(1, "a", rows[0]["text"]), (3, "b", "")]
        assert table(tmp_path, "a.jsonl", data).columns == ["label", "text", "more"]

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            *(("1", "1"), ("1.0", "1.0"), ("-0", "-0"), ("1e5", "1e5")),
            *(("true", "true"), ("false", "false"), ("9" * 5000, "9" * 5000), ('"x"', "x")),
        ],
        ids=range(8),
    )
    def test_numbers_are_the_text_of_the_file(self, tmp_path: Path, value: str, text: str) -> None:
        assert read(tmp_path, "a.NDJSON", f'{{"label": {value}, "text": "b"}}') == [(1, text, "b")]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ('{"label": null, "text": "b"}', "'label' is null."),
            ('{"label": "a", "text": ["b"]}', "'text' must be text or a number; got a value of type list."),
            ('{"label": {"a": 1}, "text": "b"}', "'label' must be text or a number; got a value of type dict."),
            ('{"label": "a"}', "the row has no 'text'."),
            ('["a", "b"]', "the line must be a JSON object, {column: value, …}."),
            ('{"label": "a", "text": "b"', "the line is not JSON: Expecting ',' delimiter at character 27."),
            ('{"label": NaN, "text": "b"}', "the line is not JSON: NaN is no JSON number."),
            ('{"label": "a", "label": "c", "text": "b"}', "the line is not JSON: a key stands twice in one object."),
            ('{"label": "a", "text": "\\ud800"}', "'text' holds a lone surrogate, which is no character."),
            ("[" * 100_000, "the line is nested too deeply."),
            (f'{{"label": "a", "text": "{"x" * 1_000_001}"}}', "'text': a cell is longer than 1,000,000 characters."),
        ],
        ids=range(11),
    )
    def test_bad_rows(self, tmp_path: Path, line: str, reason: str) -> None:
        good = '{"label": "a", "text": "b"}'
        assert read(tmp_path, "a.jsonl", f"{good}\n{line}\n{good}\n") == [(1, "a", "b"), (2, reason), (3, "a", "b")]

    def test_refused_as_a_whole(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"a\.jsonl is empty\. It must have a row a line\."):
            table(tmp_path, "a.jsonl", "\n")
        with pytest.raises(ValueError, match=r"a\.jsonl, line 1: the line is not JSON: Expecting value at character 1"):
            table(tmp_path, "a.jsonl", "label,text\na,b\n")


class TestParquet:
    def write(self, folder: Path, **columns: Any) -> tables.Table:
        parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
        return open_table(folder / "a.parquet")

    def values(self, folder: Path, values: Any) -> list[str]:
        made = self.write(folder, label=values, text=pyarrow.array(["t"] * len(values)))
        return [row.reason if isinstance(row, BadRow) else row.values["label"] for row in made.rows(["label", "text"])]

    def test_rows_over_batches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "_PARQUET_BATCH", 3)
        made = self.write(tmp_path, label=list("abcdefgh"), other=[[1]] * 8, text=[f"t{i}" for i in range(8)])
        assert made.columns == ["label", "other", "text"]
        rows = list(made.rows(["text", "label"]))
        assert rows == [Row(i + 1, {"text": f"t{i}", "label": "abcdefgh"[i]}) for i in range(8)]

    @pytest.mark.parametrize(
        ("values", "texts"),
        [
            (pyarrow.array([1, None, -3]), ["1", "'label' is null.", "-3"]),
            (pyarrow.array([1.0, 0.5, float("nan")]), ["1.0", "0.5", "'label' is nan."]),
            (pyarrow.array([True, False]), ["true", "false"]),
            (pyarrow.array([decimal.Decimal("1.50")]), ["1.50"]),
            (pyarrow.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
            (pyarrow.array(["a", "ä"], pyarrow.large_string()), ["a", "ä"]),
            (
                pyarrow.array([b"a", b"\xff"]),
                ["a", "'label' is not UTF-8: byte 0xff at offset 0."],
            ),
            (pyarrow.array([[1]]), ["'label' must be text or a number; got a value of type list."]),
            (
                pyarrow.array([datetime.date(2020, 1, 1)]),
                ["'label' must be text or a number; got a value of type date."],
            ),
        ],
        ids=range(9),
    )
    def test_values(self, tmp_path: Path, values: Any, texts: list[str]) -> None:
        assert self.values(tmp_path, values) == texts

    def test_a_string_that_is_not_utf8(self, tmp_path: Path) -> None:
        forged = pyarrow.array([b"good", b"caf\xe9"]).view(pyarrow.string())
        assert self.values(tmp_path, forged) == ["good", "'label' is not UTF-8: byte 0xe9 at offset 3."]

    @pytest.mark.parametrize("data", [b"PAR1", b"label,text\n", b"PAR1" + b"\0" * 40 + b"PAR1"])
    def test_refused_as_a_whole(self, tmp_path: Path, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"(?s)a\.parquet can't be read as Parquet: .*[^.]\.$"):
            table(tmp_path, "a.parquet", data)

    def test_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"a\.parquet is empty\."):
            table(tmp_path, "a.parquet", b"")

    def test_cut_short_while_it_is_read(self, tmp_path: Path) -> None:
        made = self.write(tmp_path, label=["a"] * 400_000, text=[f"{number * 7919}" for number in range(400_000)])
        rows = made.rows(COLUMNS)
        assert next(rows) == Row(1, {"label": "a", "text": "0"})
        os.truncate(tmp_path / "a.parquet", 100_000)
        with pytest.raises(ValueError, match=r"a\.parquet is damaged behind row \d+: .*[^.]\.$"):
            list(rows)

    def test_changed_before_it_is_read(self, tmp_path: Path) -> None:
        made = self.write(tmp_path, label=["a"], text=["b"])
        self.write(tmp_path, label=["a"], other=["b"])
        with pytest.raises(ValueError, match=r"a\.parquet was changed while it was read\. Run again\."):
            list(made.rows(COLUMNS))

    def test_damage_in_the_middle(self, tmp_path: Path) -> None:
        self.write(tmp_path, label=["a"] * 1000, text=[f"text {i}" for i in range(1000)])
        path = tmp_path / "a.parquet"
        data = bytearray(path.read_bytes())
        data[4:400] = b"\xff" * 396
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"(?s)a\.parquet is damaged behind row 0: .*[^.]\.$"):
            list(open_table(path).rows(COLUMNS))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.parquet.gz", "a.gz", "a.conll"])
def test_unknown_formats(tmp_path: Path, name: str) -> None:
    known = r"must end in one of \.csv, \.tsv, \.tab, \.jsonl, \.ndjson, \.parquet, which says how to read it"
    with pytest.raises(ValueError, match=rf"{name} {known}"):
        open_table(tmp_path / name)


@pytest.mark.parametrize("suffix", list(tables.TABLES))
def test_what_is_no_file(tmp_path: Path, suffix: str) -> None:
    """A pipe that nobody writes to would be read for ever."""
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"link{suffix}").symlink_to("nowhere")
    for name, wrong in (
        *(("pipe", "is no file"), ("folder", "is no file"), ("device", "is no file")),
        *(("link", "does not exist"), ("missing", "does not exist"), ("x" * 300, "can't be read: File name too long")),
    ):
        path = tmp_path / f"{name}{suffix}"
        with pytest.raises(ValueError, match=f"^{re.escape(f'{path} {wrong}. Give a file of data.')}$"):
            open_table(path)


def test_a_file_that_is_emptied_before_it_is_read(tmp_path: Path) -> None:
    made = table(tmp_path, "a.csv", "label,text\na,b\n")
    (tmp_path / "a.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.csv was changed while it was read\. Run again\."):
        list(made.rows(COLUMNS))


class TestSemicolons:
    def test_spreadsheets_that_write_commas_into_numbers(self, tmp_path: Path) -> None:
        read = table(tmp_path, "a.csv", 'label;text\na;1,5 litres\nb;"x;y"\nc;x;y\n')
        assert read.columns == ["label", "text"]
        assert read.notes == ["a.csv: the columns are separated by semicolons, as the header has these and no comma."]
        rows = list(read.rows(["label", "text"]))
        assert [row.values for row in rows if isinstance(row, Row)] == [
            {"label": "a", "text": "1,5 litres"},
            {"label": "b", "text": "x;y"},
        ]
        (bad,) = (row for row in rows if isinstance(row, BadRow))
        assert (bad.line, bad.reason) == (
            4,
            "the row must have 2 fields, as the header; got 3. Quote a text that holds a semicolon.",
        )

    def test_a_comma_in_the_header_decides(self, tmp_path: Path) -> None:
        assert table(tmp_path, "a.csv", "label,text;more\na,b\n").columns == ["label", "text;more"]
