"""The committed licences data set: what its README promises, checked without the builder's code."""

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from export.contract import normalise_text
from pipeline.data.dataset import SPLITS, Dataset, load_dataset

FOLDER = Path(__file__).parents[3] / "pipeline" / "data" / "licences"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset()


@pytest.fixture(scope="module")
def rows(dataset: Dataset) -> list[tuple[str, str, str]]:
    """(split, label, text) of every row."""
    return [
        (name, dataset.labels[label], text)
        for name in SPLITS
        for text, label in zip(getattr(dataset, name).inputs, getattr(dataset, name).targets, strict=True)
    ]


def test_size(rows: list[tuple[str, str, str]], dataset: Dataset) -> None:
    assert 16_000 < len(rows) < 18_500
    assert 50 <= len(dataset.labels) <= 60
    shares = Counter(split for split, _, _ in rows)
    assert shares["train"] / len(rows) == pytest.approx(0.8, abs=0.015)
    assert shares["validation"] / len(rows) == pytest.approx(0.1, abs=0.015)
    assert shares["test"] / len(rows) == pytest.approx(0.1, abs=0.015)
    assert (FOLDER / "licences.jsonl.gz").stat().st_size < 4_000_000


def test_labels(rows: list[tuple[str, str, str]], dataset: Dataset) -> None:
    assert dataset.labels == sorted(set(dataset.labels))
    counts = Counter(label for _, label, _ in rows)
    assert set(counts) == set(dataset.labels)
    assert min(counts.values()) >= 60
    assert {"MIT", "Apache-2.0", "GPL-2.0-or-later", "BSD-3-Clause", "GPL-2.0-only OR MIT"} <= set(counts)
    nameless = "unknown|other-permissive|other-copyleft|proprietary|commercial-license|warranty-disclaimer"
    assert not [label for label in counts if re.search(nameless, label)]


def test_every_label_in_every_split(rows: list[tuple[str, str, str]], dataset: Dataset) -> None:
    assert len({(split, label) for split, label, _ in rows}) == 3 * len(dataset.labels)


def test_texts_are_clean(rows: list[tuple[str, str, str]]) -> None:
    for _, _, text in rows:
        assert 0 < len(text) <= 2000
        assert text == " ".join(text.split()) == normalise_text(text)
        assert not re.search(r"[\w.+-]+@[\w-]+\.\w+", text)
        assert "{{" not in text


def test_no_exact_duplicates(rows: list[tuple[str, str, str]]) -> None:
    folded: dict[str, list[int]] = defaultdict(list)
    for index, (_, _, text) in enumerate(rows):
        folded["".join(char for char in text.lower() if char.isalnum() or char in "+ ")].append(index)
    # The builder's fold reads punctuation as a space, this one as nothing, so what little is left is checked for sides.
    assert sum(len(group) > 1 for group in folded.values()) < 0.01 * len(rows)
    by_letters: dict[str, set[str]] = defaultdict(set)
    for split, _, text in rows:
        by_letters["".join(char for char in text.lower() if char.isalnum())].add(split)
    assert all(len(splits) == 1 for splits in by_letters.values())
    by_words: Counter[str] = Counter(
        " ".join("".join(char if char.isalnum() or char == "+" else " " for char in text.lower()).split())
        for _, _, text in rows
    )
    assert max(by_words.values()) == 1


def test_no_near_duplicates_across_splits(rows: list[tuple[str, str, str]]) -> None:
    """Every pair across splits, by an inverted index of each text's rarest triples."""
    documents = []
    for _, _, text in rows:
        words = "".join(char if char.isalnum() else " " for char in text.lower()).split()
        documents.append({" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))})
    frequency = Counter(triple for document in documents for triple in document)
    index: dict[str, list[int]] = defaultdict(list)
    compared = 0
    for number, document in enumerate(documents):
        ordered = sorted(document, key=lambda triple: (frequency[triple], triple))
        # Two sets of Jaccard ≥ 0.8 share a member among the rarest 20 % (and one) of each.
        prefix = ordered[: len(ordered) - -(-4 * len(ordered) // 5) + 1]
        candidates = {other for triple in prefix for other in index[triple] if rows[other][0] != rows[number][0]}
        for other in candidates:
            compared += 1
            shared = len(document & documents[other])
            assert 5 * shared < 4 * (len(document) + len(documents[other]) - shared), (rows[number], rows[other])
        for triple in prefix:
            index[triple].append(number)
    assert compared > 1000


def test_record_readme_and_notice(rows: list[tuple[str, str, str]], dataset: Dataset) -> None:
    record = json.loads((FOLDER / "licences.json").read_text("utf-8"))
    assert record["rows"] == dict(Counter(split for split, _, _ in rows))
    assert record["licence"] == dataset.licence == "CC-BY-4.0"
    readme = (FOLDER / "README.md").read_text("utf-8")
    for label in dataset.labels:
        counts = [sum(row[:2] == (split, label) for row in rows) for split in SPLITS]
        assert f"| {label} | {' | '.join(f'{n:,}' for n in [*counts, sum(counts)])} |" in readme
    notice = (FOLDER / "NOTICE").read_text("utf-8")
    assert "Copyright (c) nexB Inc. and others. All rights reserved." in notice
    assert "SPDX-License-Identifier: CC-BY-4.0" in notice
    assert "adapted from" in notice


def test_rules_are_named(dataset: Dataset) -> None:
    lines = gzip.decompress((FOLDER / "licences.jsonl.gz").read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    rules = [json.loads(line)["rule"] for line in lines]
    assert len(set(rules)) == len(rules)
