"""Which files are taken for which split."""

import re
from pathlib import Path

import pytest

from pipeline.data.find import Found, find_files


def folder(path: Path, *names: str) -> str:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_text("")
    return str(path)


def names(found: Found) -> tuple[list[str], ...]:
    return tuple([path.name for path in files] for files in (found.train, found.validation, found.test))


def test_files_are_taken_in_the_order_given(tmp_path: Path) -> None:
    folder(tmp_path, "b.csv", "a.jsonl", "c.TSV", "d.parquet")
    asked = [str(tmp_path / name) for name in ("b.csv", "a.jsonl", "c.TSV", "d.parquet")]
    found = find_files(asked[:2], asked[2:3], asked[3:])
    assert names(found) == (["b.csv", "a.jsonl"], ["c.TSV"], ["d.parquet"])
    assert found.notes == ()


@pytest.mark.parametrize("validation", ["valid.csv", "VAL.csv", "dev.csv", "validation.csv.gz", "Dev.tsv"])
def test_a_folder_fills_the_splits(tmp_path: Path, validation: str) -> None:
    own = folder(tmp_path / "set", "Train.csv", validation, "test.csv", "all.csv", "README.md", ".hidden.csv")
    folder(tmp_path / "set" / "inner.csv", "more.csv")
    found = find_files([own], [], [])
    assert names(found) == (["Train.csv"], [validation], ["test.csv"])
    assert found.notes == ("set: not used are all.csv.",)


def test_without_split_names_all_files_are_training_data(tmp_path: Path) -> None:
    own = folder(tmp_path, "b.csv", "a.csv", "trainer.csv", "notes.txt", ".c.csv")
    assert names(find_files([own], [], [])) == (["a.csv", "b.csv", "trainer.csv"], [], [])


def test_numbered_parts_belong_together(tmp_path: Path) -> None:
    parts = [f"train-0000{part}-of-00002-{part}a0f.parquet" for part in range(2)]
    own = folder(tmp_path, *reversed(parts), "test-00000-of-00001.parquet")
    assert names(find_files([own], [], [])) == (parts, [], ["test-00000-of-00001.parquet"])


def test_what_is_named_wins_over_the_folder(tmp_path: Path) -> None:
    own = folder(tmp_path / "set", "train.csv", "valid.csv", "test.csv")
    other = folder(tmp_path / "other", "mine.csv", "rest.csv")
    found = find_files([own], [str(tmp_path / "other" / "mine.csv")], [])
    assert names(found) == (["train.csv"], ["mine.csv"], ["test.csv"])
    assert found.notes == ("set: not used are valid.csv.",)
    # A folder for one split: its file for that split, or all of them.
    assert names(find_files([str(tmp_path / "set" / "train.csv")], [own], [other])) == (
        *(["train.csv"], ["valid.csv"], ["mine.csv", "rest.csv"]),
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a.txt"], "holds no data file. Known are .csv, .tsv, .tab, .jsonl, .ndjson, .parquet, .conll, .iob, .bio."),
        ([], "holds no data file."),
        (
            ["train.tsv", "train.conll"],
            "holds more than one file for train: train.conll, train.tsv. "
            "Name the one that you mean instead of the folder.",
        ),
        (["train.csv", "train.csv.gz"], "holds more than one file for train: train.csv, train.csv.gz."),
        (["train.csv", "dev.csv", "val.csv"], "holds more than one file for validation: dev.csv, val.csv."),
        (["train.csv", "train-1.csv"], "holds more than one file for train: train-1.csv, train.csv."),
        (["a.tsv", "a.conll"], "holds both a.conll and a.tsv. Name the one that you mean instead of the folder."),
        (
            ["test.csv", "a.csv"],
            "has files called after splits, but none for train: a.csv, test.csv. Name the files that you mean.",
        ),
    ],
)
def test_refused_folders(tmp_path: Path, files: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path} {message}")):
        find_files([folder(tmp_path, *files)], [], [])


def test_refused_files(tmp_path: Path) -> None:
    folder(tmp_path, "a.csv", "a.xlsx")
    known = ".csv, .tsv, .tab, .jsonl, .ndjson, .parquet, .conll, .iob, .bio"
    for asked, message in (
        ([str(tmp_path / "no.csv")], f"{tmp_path / 'no.csv'} does not exist. Give a file or folder of labelled data."),
        ([str(tmp_path / "a.xlsx")], f"{tmp_path / 'a.xlsx'} must end in one of {known}, which says how to read it."),
        (
            [str(tmp_path / "a.csv")] * 2,
            f"{tmp_path / 'a.csv'} is named for train and for train. Name every file once.",
        ),
        (["/dev/null"], "/dev/null is no file."),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            find_files(asked, [], [])
    with pytest.raises(ValueError, match=r"a\.csv is named for train and for test"):
        find_files([str(tmp_path / "a.csv")], [], [str(tmp_path / ".." / tmp_path.name / "a.csv")])
