"""Own files as data sets: what is read, cut and told, and every input that is refused."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pipeline.config import DataConfig
from pipeline.data.dataset import SPLITS, Dataset
from pipeline.data.lines import BadRow
from pipeline.data.own import open_data

ROOT = Path(__file__).parents[3]
GUESSED = "guessed columns: the text is 'text', the label 'label'."

Rows = Sequence[tuple[str, str]]


def write_csv(path: Path, rows: Rows, header: str = "label,text") -> str:
    lines = [header, *(f'{label},"{text}"' for label, text in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def make_rows(count: int, labels: Sequence[str] = ("a", "b"), word: str = "text") -> list[tuple[str, str]]:
    return [(labels[number % len(labels)], f"{word} {number}") for number in range(count)]


def load(tmp_path: Path, train: str | Sequence[str], **options: Any) -> Dataset:
    files = (train,) if isinstance(train, str) else tuple(train)
    return open_data(DataConfig(train=files, **options)).load(tmp_path / "scratch", show=False)


def rows_of(dataset: Dataset, split: str) -> list[tuple[str, str]]:
    own = getattr(dataset, split)
    return [(dataset.labels[target], text) for text, target in zip(own.inputs, own.targets, strict=True)]


def all_rows(dataset: Dataset) -> list[tuple[str, str]]:
    return sorted(row for split in SPLITS for row in rows_of(dataset, split))


class TestSplits:
    def test_fifty_rows_are_enough(self, tmp_path: Path) -> None:
        rows = make_rows(50, "abcde")
        dataset = load(tmp_path, write_csv(tmp_path / "mine.csv", rows))
        assert all_rows(dataset) == sorted(rows)
        assert min(len(getattr(dataset, split).inputs) for split in SPLITS) >= 1
        assert {label for label, _ in rows_of(dataset, "train")} == set("abcde")
        assert (dataset.name, dataset.task, dataset.labels) == ("mine", "text-classification", list("abcde"))
        assert (dataset.rows_read, dataset.bad_rows, dict(dataset.none), dataset.notes) == (50, (), {}, (GUESSED,))
        assert (dataset.licence, dataset.attribution) == ("not stated", "not stated")
        assert dataset.origin == "the user's own files"
        assert dataset.train.targets.dtype == np.int64  # type: ignore[union-attr]

    def test_given_files_are_used_whole(self, tmp_path: Path) -> None:
        given = {split: make_rows(size, word=split) for split, size in (("train", 20), ("validation", 6), ("test", 4))}
        files = {split: (write_csv(tmp_path / f"{split}.csv", rows),) for split, rows in given.items()}
        dataset = load(tmp_path, **files)  # type: ignore[arg-type]
        assert {split: rows_of(dataset, split) for split in SPLITS} == given

    def test_only_what_is_missing_is_cut(self, tmp_path: Path) -> None:
        train = write_csv(tmp_path / "a.csv", make_rows(100))
        held = write_csv(tmp_path / "b.csv", make_rows(10, word="held"))
        dataset = load(tmp_path, train, test=(held,))
        assert len(dataset.test.inputs) == 10
        assert len(dataset.train.inputs) + len(dataset.validation.inputs) == 100
        dataset = load(tmp_path, train, validation=(held,))
        assert len(dataset.validation.inputs) == 10
        assert len(dataset.train.inputs) + len(dataset.test.inputs) == 100

    def test_a_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "reviews"
        folder.mkdir()
        for name, size in (("train.csv", 20), ("dev.csv", 6), ("test.csv", 4), ("all.csv", 30)):
            write_csv(folder / name, make_rows(size))
        dataset = load(tmp_path, str(folder))
        assert [len(getattr(dataset, split).inputs) for split in SPLITS] == [20, 6, 4]
        assert dataset.name == "reviews"
        assert dataset.notes[0] == "reviews: not used are all.csv."

    def test_rows_that_are_added_move_no_other(self, tmp_path: Path) -> None:
        rows = make_rows(400)
        before = load(tmp_path, write_csv(tmp_path / "a.csv", rows))
        after = load(tmp_path, write_csv(tmp_path / "b.csv", make_rows(400, word="more") + rows))
        for split in SPLITS:
            assert [row for row in rows_of(after, split) if "more" not in row[1]] == rows_of(before, split)

    def test_equal_texts_stay_together(self, tmp_path: Path) -> None:
        """Equal by the contract's text rules, and whatever their labels."""
        rows = [row for label, text in make_rows(200) for row in ((label, text), ("c", f" {text}  "), (label, text))]
        dataset = load(tmp_path, write_csv(tmp_path / "a.csv", rows))
        texts = [{text.strip() for _, text in rows_of(dataset, split)} for split in SPLITS]
        assert sum(map(len, texts)) == 200
        assert not any("also in" in note for note in dataset.notes)

    def test_duplicates_are_told_and_not_dropped(self, tmp_path: Path) -> None:
        train = write_csv(tmp_path / "a.csv", [("a", "one"), ("b", "two"), ("b", "one"), ("a", "three")])
        held = write_csv(tmp_path / "b.csv", [("a", "two"), ("b", "four"), ("a", " three")])
        test = write_csv(tmp_path / "c.csv", [("b", "four")])
        dataset = load(tmp_path, train, validation=(held,), test=(test,))
        assert [len(getattr(dataset, split).inputs) for split in SPLITS] == [4, 3, 1]
        assert dataset.notes[1:] == (
            "validation rows with a text that is also in train: 2 of 3, "
            "1 of them with another label there; none was dropped.",
            "test rows with a text that is also in validation: 1 of 1, "
            "0 of them with another label there; none was dropped.",
            "texts in train with different labels: 1; none was dropped.",
        )


class TestLabels:
    def test_numeric_labels_are_in_numeric_order(self, tmp_path: Path) -> None:
        rows = make_rows(60, ["10", "9", "-1"])
        assert load(tmp_path, write_csv(tmp_path / "a.csv", rows)).labels == ["-1", "9", "10"]
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps({"label": int(label), "text": text}) + "\n" for label, text in rows))
        assert load(tmp_path, str(path)).labels == ["-1", "9", "10"]

    def test_white_space_and_case(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, write_csv(tmp_path / "a.csv", make_rows(80, ["a  b", " a b", "A b", "c"])))
        assert dataset.labels == ["A b", "a b", "c"]
        assert dataset.notes[1:3] == (
            "labels whose white space was cleaned: 'a  b', ' a b'; 4 spellings are 3 labels.",
            "labels that differ in case only stay different: 'A b' and 'a b'. Is that meant?",
        )

    def test_single_examples_stay_in_train_and_are_told(self, tmp_path: Path) -> None:
        rows = [*make_rows(60), *((f"rare {number}", f"rare text {number}") for number in range(7))]
        dataset = load(tmp_path, write_csv(tmp_path / "a.csv", rows))
        assert len([row for row in rows_of(dataset, "train") if row[0].startswith("rare")]) == 7
        assert dataset.notes[1] == (
            "classes with a single training row, which stays in train: 7, "
            "'rare 0', 'rare 1', 'rare 2', 'rare 3', 'rare 4' and 2 more."
        )

    def test_five_thousand_classes(self, tmp_path: Path) -> None:
        labels = [f"class {number}" for number in range(5000)]
        dataset = load(tmp_path, write_csv(tmp_path / "a.csv", make_rows(60_000, labels)))
        assert dataset.labels == sorted(labels)
        # Ten texts of a class make one expected in each split, so each of these has one.
        for split in SPLITS:
            assert len(np.unique(getattr(dataset, split).targets)) == 5000
        assert len(dataset.train.inputs) > 0.75 * 60_000

    def test_none_label(self, tmp_path: Path) -> None:
        own = write_csv(tmp_path / "a.csv", [*make_rows(60), *(("oos", f"odd {number}") for number in range(40))])
        held = write_csv(tmp_path / "b.csv", [*make_rows(10, word="held"), ("oos", "odd held")])
        dataset = load(tmp_path, own, none_label=" oos ")
        assert dataset.labels == ["a", "b"]
        assert sorted(dataset.none) == ["test", "validation"]
        assert sorted([*dataset.none["validation"], *dataset.none["test"]]) == sorted(f"odd {n}" for n in range(40))
        assert all_rows(dataset) == sorted(make_rows(60))
        # Given test files stay as they are, so what the training files have goes to validation.
        dataset = load(tmp_path, own, test=(held,), none_label="oos")
        assert list(dataset.none["test"]) == ["odd held"]
        assert len(dataset.none["validation"]) == 40
        assert len(dataset.test.inputs) == 10

    def test_empty_texts_are_told(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, write_csv(tmp_path / "a.csv", [*make_rows(30), ("a", ""), ("b", " \t")]))
        assert "rows with an empty text, which are used: 2." in dataset.notes
        assert len(all_rows(dataset)) == 32


class TestRefusals:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([], "a.csv has no rows. Give at least one for train."),
            (
                [("a", "one"), ("a", "two")],
                "the training rows must have at least two different labels; got 'a'. Add another class.",
            ),
            ([("a", "one"), ("b", "two")], "2 different texts are too few to cut validation and test rows from"),
        ],
    )
    def test_too_little(self, tmp_path: Path, rows: Rows, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            load(tmp_path, write_csv(tmp_path / "a.csv", rows))
        # What was written until then is gone.
        assert list((tmp_path / "scratch").iterdir()) == []

    def test_empty_file(self, tmp_path: Path) -> None:
        for name, message in (
            ("a.csv", "a.csv is empty. It must have a header and rows."),
            ("a.jsonl", "a.jsonl is empty. It must have a row a line."),
            ("a.parquet", "a.parquet is empty."),
            ("a.conll", "a.conll has no line with a word and a tag."),
        ):
            (tmp_path / name).write_bytes(b"")
            with pytest.raises(ValueError, match=re.escape(message)):
                load(tmp_path, str(tmp_path / name))

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'a.csv'} does not exist.")):
            load(tmp_path, str(tmp_path / "a.csv"))

    def test_unknown_column(self, tmp_path: Path) -> None:
        file = write_csv(tmp_path / "a.csv", make_rows(30))
        with pytest.raises(
            ValueError, match=r"a\.csv has no column 'body' for the text; its columns are 'label', 'text'"
        ):
            load(tmp_path, file, text="body")
        other = write_csv(tmp_path / "b.csv", make_rows(30), header="label,sentence")
        with pytest.raises(ValueError, match=r"b\.csv has no column 'text' for the text"):
            load(tmp_path, file, test=(other,))

    def test_labels_that_train_lacks(self, tmp_path: Path) -> None:
        train = write_csv(tmp_path / "a.csv", make_rows(30))
        test = write_csv(tmp_path / "b.csv", make_rows(30, ["a", "d", "c"]))
        message = "test has labels that train lacks: 'c', 'd'. Add training rows for them, or take these rows out."
        with pytest.raises(ValueError, match=re.escape(message)):
            load(tmp_path, train, test=(test,))

    def test_a_none_label_that_nothing_has(self, tmp_path: Path) -> None:
        message = "no row has the none_label 'oss'; the labels are 'a', 'b'. Correct it, or leave it out."
        with pytest.raises(ValueError, match=re.escape(message)):
            load(tmp_path, write_csv(tmp_path / "a.csv", make_rows(30)), none_label="oss")

    def test_the_wrong_column_as_label(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.data.labels.MAX_LABELS", 20)
        monkeypatch.setattr("pipeline.data.readers.MAX_LABELS", 20)
        message = (
            "a.csv: the column 'text' has more than 20 different values. Is it the label? Name another with --label."
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            load(tmp_path, write_csv(tmp_path / "a.csv", make_rows(30)), text="label", label="text")

    def test_tables_and_conll_can_not_be_mixed(self, tmp_path: Path) -> None:
        table = write_csv(tmp_path / "a.csv", make_rows(30))
        (tmp_path / "a.conll").write_text("a\tO\n")
        with pytest.raises(ValueError, match=r"CoNLL files and tables can't be mixed; got a\.csv, a\.conll\."):
            load(tmp_path, table, test=(str(tmp_path / "a.conll"),))

    def test_a_wrong_configuration(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"data\.test_share must lie in \(0, 0\.5\]; got 0\.6\."):
            open_data(DataConfig(train=("a.csv",), test_share=0.6))

    def test_a_file_that_changes(self, tmp_path: Path) -> None:
        file = write_csv(tmp_path / "a.csv", make_rows(30))
        source = open_data(DataConfig(train=(file,)))
        write_csv(tmp_path / "a.csv", make_rows(31))
        with pytest.raises(ValueError, match=r"a data file was changed while it was read\. Run again\."):
            source.load(tmp_path, show=False)

    def test_a_file_that_is_replaced(self, tmp_path: Path) -> None:
        """By one of the same size and time."""
        file, other = (write_csv(tmp_path / name, make_rows(30, word=name[0])) for name in ("a.csv", "b.csv"))
        for name in (file, other):
            os.utime(name, ns=(0, 0))
        source = open_data(DataConfig(train=(file,)))
        os.replace(other, file)
        with pytest.raises(ValueError, match=r"a data file was changed while it was read\. Run again\."):
            source.load(tmp_path, show=False)


class TestBadRows:
    def write(self, path: Path, good: int, bad: int) -> str:
        lines = ["label,text", *(f"{'ab'[number % 2]},good {number}" for number in range(good)), *[",no label"] * bad]
        path.write_text("\n".join(lines))
        return str(path)

    def test_few_are_told_by_line(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, self.write(tmp_path / "a.csv", 297, 3), max_bad_share=0.01)
        assert dataset.rows_read == 300
        assert len(all_rows(dataset)) == 297
        assert dataset.bad_rows == tuple(BadRow("a.csv", line, "the label is empty.") for line in (299, 300, 301))
        assert dataset.notes[1:] == (
            "rows of a.csv that can't be used and were left out: 3 of 300.",
            *(f"a.csv, line {line}: the label is empty." for line in (299, 300, 301)),
        )

    def test_many_are_cut_short(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, self.write(tmp_path / "a.csv", 60, 40), max_bad_share=0.5)
        assert len(dataset.bad_rows) == 40
        assert len(dataset.notes) == 1 + 1 + 20 + 1
        assert dataset.notes[-1] == "… and 20 more"

    def test_too_many_are_refused(self, tmp_path: Path) -> None:
        message = (
            "12 of the 300 rows of a.csv can't be used; max_bad_share = 0.01 allows fewer:\n"
            + "".join(f"  a.csv, line {line}: the label is empty.\n" for line in range(290, 300))
            + "  … and 2 more\nRepair them, or raise data.max_bad_share."
        )
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            load(tmp_path, self.write(tmp_path / "a.csv", 288, 12))

    def test_the_share_is_that_of_a_split(self, tmp_path: Path) -> None:
        train, test = self.write(tmp_path / "a.csv", 1000, 0), self.write(tmp_path / "b.csv", 10, 1)
        with pytest.raises(ValueError, match=r"^1 of the 11 rows of b\.csv can't be used"):
            load(tmp_path, train, test=(test,))

    def test_kept_bad_rows_are_capped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.data.tally.MAX_BAD_ROWS", 7)
        dataset = load(tmp_path, self.write(tmp_path / "a.csv", 60, 40), max_bad_share=0.5)
        assert len(dataset.bad_rows) == 7
        assert dataset.notes[1] == "rows of a.csv that can't be used and were left out: 40 of 100."

    def test_a_file_in_another_encoding(self, tmp_path: Path) -> None:
        rows = "".join(f"{label},caf\u00e9 {text}\n" for label, text in make_rows(30))
        (tmp_path / "a.csv").write_bytes(("label,text\n" + rows).encode("latin-1"))
        with pytest.raises(ValueError, match=r"30 of the 30 rows of a\.csv can't be used") as error:
            load(tmp_path, str(tmp_path / "a.csv"))
        assert "a.csv, line 2: text must be valid UTF-8; got byte 0xe9 at offset 5" in str(error.value)
        assert str(error.value).endswith(" Is the file UTF-8? Convert it if not.")

    def test_an_unclosed_quote_is_one_bad_row(self, tmp_path: Path) -> None:
        rows = [f"{label},{text}" for label, text in make_rows(200)]
        (tmp_path / "a.csv").write_text("\n".join(["label,text", *rows[:50], 'a,"open', *rows[50:]]))
        dataset = load(tmp_path, str(tmp_path / "a.csv"))
        assert dataset.bad_rows == (BadRow("a.csv", 52, "a quotation mark is never closed."),)
        assert len(all_rows(dataset)) == 200

    def test_a_missing_mark_is_one_bad_row(self, tmp_path: Path) -> None:
        rows = [f"{label},{text}" for label, text in make_rows(200)]
        (tmp_path / "a.csv").write_text(
            "\n".join(["label,text", *rows[:50], 'a,"start', *rows[50:100], 'b,end"', *rows])
        )
        dataset = load(tmp_path, str(tmp_path / "a.csv"))
        (bad,) = dataset.bad_rows
        assert str(bad).startswith(
            "a.csv, line 52: a quotation mark is missing: a quoted field goes on over the next 50 "
        )
        assert dataset.rows_read == 302

    def test_files_of_one_name_are_told_apart(self, tmp_path: Path) -> None:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
        files = [self.write(tmp_path / folder / "a.csv", 100, 1) for folder in ("one", "two")]
        dataset = load(tmp_path, files, max_bad_share=0.1)
        assert [row.file for row in dataset.bad_rows] == ["one/a.csv", "two/a.csv"]


class TestFormats:
    def test_the_same_rows_from_every_format(self, tmp_path: Path) -> None:
        rows = [*make_rows(60), ("a", "\x00ä, \u2028 😀"), ("b", "two\nlines")]
        records = [{"label": label, "text": text} for label, text in rows]
        write_csv(tmp_path / "a.csv", rows)
        (tmp_path / "b.csv").write_bytes((tmp_path / "a.csv").read_bytes().replace(b"\n", b"\r\n"))
        (tmp_path / "a.tsv").write_text("label\ttext\n" + "".join(f'{label}\t"{text}"\n' for label, text in rows))
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
        parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
        wanted = load(tmp_path, str(tmp_path / "a.csv"))
        assert all_rows(wanted) == sorted(rows)
        for name in ("a.tsv", "a.jsonl", "a.parquet"):
            dataset = load(tmp_path, str(tmp_path / name))
            for split in SPLITS:
                assert rows_of(dataset, split) == rows_of(wanted, split)
        # White space counts as one kind, so this one is cut alike.
        windows = load(tmp_path, str(tmp_path / "b.csv"))
        assert [len(getattr(windows, split).inputs) for split in SPLITS] == [
            len(getattr(wanted, split).inputs) for split in SPLITS
        ]

    def test_byte_order_mark_is_told(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "a.csv", make_rows(30))
        (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "a.csv").read_bytes())
        notes = load(tmp_path, str(tmp_path / "a.csv")).notes
        assert notes == ("a.csv: a byte order mark at the start was dropped.", GUESSED)

    def test_a_cell_of_ten_megabytes_is_a_bad_row(self, tmp_path: Path) -> None:
        file = write_csv(tmp_path / "a.csv", [*make_rows(200), ("a", "x" * 10_000_000)])
        (bad,) = load(tmp_path, file).bad_rows
        reason = "a cell is longer than 1,000,000 characters. Is a quotation mark unclosed?"
        assert bad == BadRow("a.csv", 202, reason)


class TestTagging:
    def write(self, path: Path, sentences: int = 60, extra: str = "") -> str:
        made = [f"go\tO\nto\tO\ncity{number}\tB-place\nhall\tI-place\n" for number in range(sentences)]
        path.write_text("\n".join(made) + extra, "utf-8")
        return str(path)

    def test_sentences(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, self.write(tmp_path / "trips.conll"))
        assert (dataset.name, dataset.task) == ("trips", "token-classification")
        assert dataset.labels == ["O", "B-place", "I-place"]
        assert (dataset.rows_read, dataset.notes) == (60, ())
        found = []
        for split in SPLITS:
            own = getattr(dataset, split)
            assert len(own.inputs) == len(own.targets) >= 1
            for words, tags in zip(own.inputs, own.targets, strict=True):
                assert [dataset.labels[tag] for tag in tags] == ["O", "O", "B-place", "I-place"]
                assert tags.dtype == np.int64
                found.append(words)
        assert sorted(found) == sorted(["go", "to", f"city{number}", "hall"] for number in range(60))

    def test_a_bad_line_costs_its_sentence(self, tmp_path: Path) -> None:
        file = self.write(tmp_path / "a.conll", extra="\ngo\tO\nthere\nnow\n\nbye\tX\n")
        dataset = load(tmp_path, file, max_bad_share=0.1)
        assert dataset.rows_read == 62
        assert dataset.bad_rows == (
            BadRow("a.conll", 302, "the line has a word without a tag."),
            BadRow("a.conll", 305, "the tag must be O, B-x or I-x, as others of the data are; got 'X'."),
        )

    def test_a_rare_tag_stays_in_train(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, self.write(tmp_path / "a.conll", extra="\nAda\tB-name\n"))
        assert any(dataset.labels.index("B-name") in tags for tags in dataset.train.targets)

    def test_plain_tags_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "a.conll").write_text("\n".join(f"go\tVERB\nx{number}\tNOUN\n" for number in range(40)))
        dataset = load(tmp_path, str(tmp_path / "a.conll"))
        assert dataset.labels == ["NOUN", "VERB"]
        assert dataset.notes == (
            "no tag is B-x or I-x, so the tags are plain: they are scored by word and not by span.",
        )

    def test_other_prefixes_are_told(self, tmp_path: Path) -> None:
        dataset = load(tmp_path, self.write(tmp_path / "a.conll", extra="\nAda\tS-place\n"))
        assert dataset.notes == (
            "tags with the prefixes S are tags of their own; spans are read as BIO. "
            "Convert IOBES or BILOU to BIO if they are to count as spans.",
        )

    def test_duplicates_with_other_tags_are_told(self, tmp_path: Path) -> None:
        test = tmp_path / "b.conll"
        test.write_text("go\tO\nto\tO\ncity1\tO\nhall\tO\n\ngo\tO\nto\tO\ncity2\tB-place\nhall\tI-place\n")
        dataset = load(tmp_path, self.write(tmp_path / "a.conll"), test=(str(test),), validation_share=0.001)
        assert dataset.notes == (
            "test rows with a text that is also in train: 2 of 2, "
            "1 of them with another label there; none was dropped.",
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a\tO\n\nb\tO\n", "the training rows must have at least two different tags; got 'O'. Add another class."),
            ("a\tO\n\nb\tB-x\n", "2 different texts are too few to cut validation and test rows from"),
        ],
    )
    def test_refuses(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "a.conll").write_text(text)
        with pytest.raises(ValueError, match=re.escape(message)):
            load(tmp_path, str(tmp_path / "a.conll"))

    def test_refuses_the_options_of_tables(self, tmp_path: Path) -> None:
        message = (
            "CoNLL files have no named columns and no label for whole texts. Leave out text, label and none_label."
        )
        for options in ({"text": "x"}, {"label": "x"}, {"none_label": "x"}):
            with pytest.raises(ValueError, match=re.escape(message)):
                load(tmp_path, self.write(tmp_path / "a.conll"), **options)

    def test_tags_that_train_lacks(self, tmp_path: Path) -> None:
        (tmp_path / "b.conll").write_text("Ada\tB-name\n")
        with pytest.raises(ValueError, match=r"test has tags that train lacks: 'B-name'\."):
            load(tmp_path, self.write(tmp_path / "a.conll"), test=(str(tmp_path / "b.conll"),))


class TestSource:
    def test_the_hash_is_over_contents_and_options_and_not_over_paths(self, tmp_path: Path) -> None:
        config = DataConfig(train=(write_csv(tmp_path / "a.csv", make_rows(30)),))
        moved = dataclasses.replace(config, train=(write_csv(tmp_path / "b.CSV", make_rows(30)),), licence="CC0-1.0")
        wanted = open_data(config).sha256
        assert re.fullmatch("[0-9a-f]{64}", wanted)
        assert open_data(moved).sha256 == wanted
        assert open_data(config).load(tmp_path, show=False).sha256 == wanted
        other = write_csv(tmp_path / "c.csv", make_rows(31))
        for change in (
            {"train": (other,)},
            {"train": (*config.train, other)},
            {"train": (other, *config.train)},
            {"test": (other,)},
            {"validation": (other,)},
            {"text": "text"},
            {"label": "label"},
            {"none_label": "a"},
            {"validation_share": 0.2},
            {"test_share": 0.2},
            {"max_bad_share": 0.2},
        ):
            changed = open_data(dataclasses.replace(config, **change)).sha256  # type: ignore[arg-type]
            assert changed != wanted, change

    def test_the_hash_needs_no_parsing(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"\xff\xfe nothing that can be read")
        assert open_data(DataConfig(train=(str(tmp_path / "a.csv"),))).sha256

    def test_built_in_sets_come_through_the_same_door(self, tmp_path: Path) -> None:
        source = open_data(DataConfig())
        dataset = source.load(tmp_path / "none", show=False)
        assert (source.task, dataset.name, dataset.sha256) == ("text-classification", "licences", source.sha256)
        assert not (tmp_path / "none").exists()
        with pytest.raises(ValueError, match=r"unknown data set 'nope'"):
            open_data(DataConfig(name="nope"))

    def test_a_name_of_ones_own(self, tmp_path: Path) -> None:
        assert load(tmp_path, write_csv(tmp_path / "a.csv", make_rows(30)), name="mine").name == "mine"

    def test_loading_needs_neither_torch_nor_pyarrow(self, tmp_path: Path) -> None:
        file = write_csv(tmp_path / "a.csv", make_rows(30))
        program = (
            "import sys; from pathlib import Path; from pipeline.config import DataConfig;"
            "from pipeline.data.own import open_data;"
            f"open_data(DataConfig(train=({file!r},))).load(Path({str(tmp_path)!r}), show=False);"
            "print(sorted({'torch', 'pyarrow', 'sklearn', 'click'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"
