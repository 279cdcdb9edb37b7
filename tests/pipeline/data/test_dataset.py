"""Loading a data set, and refusing a damaged one."""

import dataclasses
import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.dataset import DATASETS, load_dataset, load_record

ROWS = [
    {"split": "train", "label": "b", "text": "one"},
    {"split": "validation", "label": "a", "text": "two\u2028three"},
    {"split": "train", "label": "a", "text": "four"},
    {"split": "test", "label": "b", "text": "five", "rule": "any"},
]


def packed(data: bytes) -> bytes:
    # Without the time of day, which would give each collection of the tests other names.
    return gzip.compress(data, mtime=0)


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")


def write(folder: Path, data: bytes, **changes: Any) -> Path:
    """Write a data file and a record that fits it, but for `changes`."""
    (folder / "made.jsonl.gz").write_bytes(data)
    record = {
        "name": "made",
        "file": "made.jsonl.gz",
        "sha256": hashlib.sha256(data).hexdigest(),
        "labels": ["a", "b"],
        "licence": "CC0-1.0",
        "attribution": "nobody",
        "origin": "here",
        **changes,
    }
    path = folder / "made.json"
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not None}), "utf-8")
    return path


def test_loads(tmp_path: Path) -> None:
    data = packed(lines(ROWS))
    dataset = load_record(write(tmp_path, data))
    assert (dataset.name, dataset.task, dataset.labels) == ("made", "text-classification", ["a", "b"])
    assert (dataset.licence, dataset.attribution, dataset.origin) == ("CC0-1.0", "nobody", "here")
    assert dataset.sha256 == hashlib.sha256(data).hexdigest()
    assert (dataset.rows_read, dataset.notes, dataset.bad_rows, dict(dataset.none)) == (4, (), (), {})
    for split, inputs, targets in (
        (dataset.train, ["one", "four"], [1, 0]),
        (dataset.validation, ["two\u2028three"], [0]),
        (dataset.test, ["five"], [1]),
    ):
        assert split.inputs == inputs
        assert np.array_equal(np.asarray(split.targets), np.array(targets, np.int64))


def test_is_frozen() -> None:
    dataset = load_dataset("licences")
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]


def test_unknown_name_lists_the_legal_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'nope'\. Choose one of: licences\."):
        load_dataset("nope")
    assert list(DATASETS) == ["licences"]


@pytest.mark.parametrize("position", [0, 12, 5000, -1])
def test_one_changed_byte_is_refused(position: int, tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "pipeline" / "data" / "licences"
    data = bytearray((source / "licences.jsonl.gz").read_bytes())
    data[position] ^= 1
    (tmp_path / "licences.jsonl.gz").write_bytes(data)
    (tmp_path / "licences.json").write_bytes((source / "licences.json").read_bytes())
    with pytest.raises(ValueError, match=r"licences\.jsonl\.gz is damaged: its SHA-256 must be [0-9a-f]{64}; got"):
        load_record(tmp_path / "licences.json")


PACKED = packed(lines(ROWS))


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (PACKED, {"sha256": "0" * 64}, "is damaged"),
        (PACKED, {"file": "other.gz"}, "other.gz can't be read: No such file"),
        (PACKED, {"labels": None}, "must be a JSON object with attribution, file, labels,"),
        (PACKED[:40], {}, "is not a gzip file of UTF-8 text"),
        (b"plain", {}, "is not a gzip file of UTF-8 text"),
        (packed(b"\xff"), {}, "is not a gzip file of UTF-8 text"),
        (packed(b""), {}, "line 1 of .* is not JSON"),
        (packed(lines(ROWS[:1]) + b"{"), {}, "line 2 of .* is not JSON"),
        (packed(lines([*ROWS, ["train", "a", "x"]])), {}, "line 5 of .* must be an object with the strings"),
        (packed(lines([{"split": "train", "label": 1, "text": "x"}])), {}, "must be an object with the strings"),
        (
            packed(lines([{**ROWS[0], "split": "dev"}])),
            {},
            "split must be one of train, validation, test; got 'dev'",
        ),
        (packed(lines([{**ROWS[0], "label": "c"}])), {}, "the label 'c' is not among the record's labels"),
        (packed(lines(ROWS[:3])), {}, "has no row of the test split"),
    ],
)
def test_refuses(data: bytes, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_record(write(tmp_path, data, **changes))


def test_refuses_a_missing_or_broken_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"made\.json can't be read"):
        load_record(tmp_path / "made.json")
    (tmp_path / "made.json").write_text("{", "utf-8")
    with pytest.raises(ValueError, match=r"made\.json can't be read"):
        load_record(tmp_path / "made.json")


def test_loading_needs_little() -> None:
    program = (
        "import sys; from pipeline.data.dataset import load_dataset; load_dataset();"
        "print(sorted({'torch', 'pyarrow', 'yaml', 'sklearn', 'click'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
