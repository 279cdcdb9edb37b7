"""Both consumers refuse an artifact that was changed, exchanged or made for something newer, in one sentence."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.examples.consumers import (
    Consumer,
    change_goldens,
    change_manifest,
    copy_artifact,
    flip,
    read_json,
    reseal,
    write_manifest,
    write_metadata,
)


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    return copy_artifact(artifact, tmp_path)


def test_an_unchanged_copy_is_accepted(consumer: Consumer, copy: Path) -> None:
    reseal(copy)
    assert consumer.run(copy, "--self-test").code == 0


@pytest.mark.parametrize("file", ["manifest.json", "SHA256SUMS", "model", "tokenizer.model", "goldens.json"])
def test_a_changed_byte(consumer: Consumer, copy: Path, file: str) -> None:
    path = copy / (consumer.model if file == "model" else file)
    for position in (0, 0.6, 1):
        flip(path, position)
        said = consumer.refuses(copy, "--self-test") if file == "goldens.json" else consumer.refuses(copy)
        assert path.name in said
        flip(path, position)


@pytest.mark.parametrize("file", ["manifest.json", "SHA256SUMS", "model", "tokenizer.model", "goldens.json"])
def test_a_missing_file(consumer: Consumer, copy: Path, file: str) -> None:
    name = consumer.model if file == "model" else file
    (copy / name).unlink()
    if file == "SHA256SUMS":
        (copy / name).mkdir()
    assert f"{name} is missing from " in consumer.refuses(copy, "--self-test")


def test_files_added_to_or_cut_from_the_sums(consumer: Consumer, copy: Path) -> None:
    sums = (copy / "SHA256SUMS").read_bytes()
    for changed in (sums + sums, b"", sums.replace(b"\n", b"\r\n")):
        (copy / "SHA256SUMS").write_bytes(changed)
        assert "SHA256SUMS does not agree with manifest.json" in consumer.refuses(copy)


def test_a_manifest_that_names_other_bytes(consumer: Consumer, copy: Path) -> None:
    for file in (consumer.model, "tokenizer.model"):
        manifest = read_json(copy / "manifest.json")
        entry = manifest["files"][file]
        good = entry["sha256"]
        entry["sha256"] = manifest["files"]["config.json"]["sha256"]
        write_manifest(copy, manifest)
        assert consumer.refuses(copy).startswith(f"{file} was changed")
        entry["sha256"] = good
        write_manifest(copy, manifest)


def test_another_artifacts_model(consumer: Consumer, artifact: Path, copy: Path) -> None:
    metadata = read_json(artifact / "manifest.json")["metadata"]
    write_metadata(copy, {**metadata, "weights_sha256": "f" * 64})
    # The model is exchanged, and then the hashes too.
    assert consumer.refuses(copy).startswith(f"{consumer.model} was changed")
    reseal(copy)
    assert consumer.refuses(copy).startswith(f"{consumer.model} carries other metadata than manifest.json")


def test_a_model_without_metadata(consumer: Consumer, copy: Path) -> None:
    write_metadata(copy, None)
    reseal(copy)
    assert consumer.refuses(copy) == f"{consumer.model} carries no Ferry metadata."


def test_a_file_that_is_no_model(consumer: Consumer, copy: Path) -> None:
    shutil.copy(copy / "tokenizer.model", copy / consumer.model)
    reseal(copy)
    assert consumer.refuses(copy).startswith(f"{consumer.model} can't be loaded: ")


def test_another_tokenizer(consumer: Consumer, copy: Path) -> None:
    shutil.copy(copy / "config.json", copy / "tokenizer.model")
    reseal(copy)
    assert consumer.refuses(copy).startswith("tokenizer.model is not the tokenizer that the model was trained with")


def test_a_newer_artifact(consumer: Consumer, copy: Path) -> None:
    change_manifest(copy, lambda manifest: manifest["metadata"]["minimum_runtime"].update({consumer.runtime: "99.0.0"}))
    assert consumer.refuses(copy).startswith(f"the artifact needs {consumer.runtime} 99.0.0 or newer; this is ")


def put(*keys: str, value: Any) -> Any:
    def change(manifest: Any) -> None:
        for key in keys[:-1]:
            manifest = manifest[key]
        manifest[keys[-1]] = value

    return change


DIGITS = "0" * 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("format", value=4), "manifest.json must have format 3; got 4. Use a newer program."),
        (put("format", value=2), "manifest.json must have format 3; got 2. Use a newer program."),
        (put("format", value=True), "manifest.json: format must be a whole number."),
        (put("name", value=None), "manifest.json: name must be a string."),
        (put("metadata", value=[]), "manifest.json: metadata must be an object."),
        (put("metadata", "format", value=4), "metadata.format must be 3; got 4. Use a program that knows it."),
        (
            put("metadata", "task", value="ner"),
            "manifest.json: metadata.task must be text-classification or token-classification; got ner. "
            "Use a program that knows it.",
        ),
        (put("metadata", "task", value=3), "manifest.json: metadata.task must be a string."),
        (put("metadata", "temperature", value=0), "manifest.json: metadata.temperature must be above 0."),
        (put("metadata", "temperature", value=-0.5), "manifest.json: metadata.temperature must be above 0."),
        (put("metadata", "temperature", value="1"), "manifest.json: metadata.temperature must be a number."),
        (put("metadata", "temperature", value=True), "manifest.json: metadata.temperature must be a number."),
        (put("metadata", "threshold", value=1.01), "manifest.json: metadata.threshold must lie in 0 to 1."),
        (put("metadata", "threshold", value=-1), "manifest.json: metadata.threshold must lie in 0 to 1."),
        (put("metadata", "threshold", value=None), "manifest.json: metadata.threshold must be a number."),
        # The models' metadata is compared last, so a value that is allowed is refused for differing.
        (put("metadata", "threshold", value=1), "carries other metadata than manifest.json"),
        (put("metadata", "temperature", value=10**300), "carries other metadata than manifest.json"),
        (put("metadata", "activation", value="sigmoid"), "metadata.activation must be softmax; got sigmoid."),
        (
            put("metadata", "tokenizer", "kind", value="bert"),
            "tokenizer.kind must be sentencepiece-bpe; got bert.",
        ),
        (put("metadata", "tokenizer", "file", value="../a"), "manifest.json: files.../a is missing."),
        (put("metadata", "tokenizer", "reserved_ids", value={}), "metadata.tokenizer.reserved_ids.pad is missing."),
        (put("metadata", "labels", value=["MIT", 3]), "metadata.labels must be a list of strings, at least one."),
        (put("metadata", "limits", value=3), "metadata.limits.batch_size is missing."),
        (
            put("metadata", "limits", "input_ids", "max", value=-1),
            "metadata.limits.input_ids.max must be a whole number.",
        ),
        (put("metadata", "limits", "input_ids", "max", value=99), "tokenizer.model has "),
        (
            put("metadata", "limits", "sequence_length", "max", value=1),
            "metadata.limits leave no room for cls, sep and pad.",
        ),
        (put("metadata", "limits", "sequence_length", "max", value=99), "carries other metadata than manifest.json"),
        (
            put("files", "../a", value={"sha256": DIGITS}),
            'manifest.json: files must hold plain file names; got "../a".',
        ),
        (
            put("files", "a\nb", value={"sha256": DIGITS}),
            'manifest.json: files must hold plain file names; got "a\\nb".',
        ),
        (put("files", "a", value={"sha256": "A" * 64}), "files.a.sha256 must be 64 lower-case hexadecimal digits."),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_a_wrong_manifest(consumer: Consumer, copy: Path, change: Any, said: str) -> None:
    change_manifest(copy, change)
    assert said in consumer.refuses(copy)


@pytest.mark.parametrize(
    "manifest",
    [
        *(b"\xff", b"[NaN]", b"\xef\xbb\xbf{}", b"[" * 100_000, b"{}\0", b"[1e400]", b"[-1e400]"),
        *(b"[" + b"9" * 400 + b"]", b"[" + b"9" * 5_000 + b"]", b'["\\ud800"]', b'{"\\udfff":1}'),
    ],
    ids=lambda raw: repr(raw[:8]),
)
def test_a_manifest_that_is_no_json(consumer: Consumer, copy: Path, manifest: bytes) -> None:
    (copy / "manifest.json").write_bytes(manifest)
    assert consumer.refuses(copy) == "manifest.json is not valid JSON. Fetch the artifact again."


def test_limits(consumer: Consumer, copy: Path) -> None:
    limits = read_json(copy / "manifest.json")["metadata"]["limits"]
    longest, highest = limits["sequence_length"]["max"], limits["input_ids"]["max"]
    ones = [[1, 1, 1]]
    cases = [
        ([[2] * (longest + 1)], [[1] * (longest + 1)], f"the sequence must be 1 to {longest} tokens long"),
        ([[]], [[]], f"the sequence must be 1 to {longest} tokens long, padding included; got 0."),
        ([], [], "the batch must hold at least 1 row; got 0."),
        (
            [[2, highest + 1, 3]],
            ones,
            f"input_ids must lie in 0 to {highest} at every position, padding too; got {highest + 1}.",
        ),
        ([[2, highest + 1, 3]], [[1, 0, 1]], f"input_ids must lie in 0 to {highest} at every position"),
        ([[2, 5, 3]], [[1, 2, 1]], "attention_mask must hold 1 (token) and 0 (padding) only; got 2."),
        ([[2, 5, 3], [2, 5, 3]], ones, "attention_mask must have the shape of input_ids, (2, 3); got (1, 3)."),
    ]

    def change(goldens: Any) -> None:
        goldens["batches"] = [{"input_ids": ids, "attention_mask": mask, "logits": []} for ids, mask, _ in cases]

    change_goldens(copy, change)
    result = consumer.run(copy, "--self-test")
    assert (result.code, result.out) == (1, "")
    lines = result.err.splitlines()
    assert len(lines) == len(cases)
    for number, (line, (_, _, said)) in enumerate(zip(lines, cases, strict=True), start=1):
        assert line.startswith(f"self-test: batch {number}: {said}")


def test_limits_come_from_the_artifact(consumer: Consumer, copy: Path) -> None:
    metadata = read_json(copy / "manifest.json")["metadata"]
    metadata["limits"]["sequence_length"]["max"] = 5
    metadata["limits"]["input_ids"]["min"] = 1
    write_metadata(copy, metadata)
    reseal(copy)
    change_manifest(copy, put("metadata", value=metadata))
    result = consumer.run(copy, "\U0001f300\U0001f301\U0001f302\U0001f303")
    assert result.code == 0
    assert "the model read its first 3 pieces and not the " in result.err
    # A batch that is padded holds the id 0, which this artifact does not take.
    result = consumer.run(copy, "a", "\U0001f300")
    assert (result.code, result.out) == (1, "")
    assert "input_ids must lie in 1 to " in result.err


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": [1], "attention_mask": [1]},
        {"input_ids": [[1], [1, 2]], "attention_mask": [[1], [1, 1]]},
        {"input_ids": [[-1]], "attention_mask": [[1]]},
        {"input_ids": [[True]], "attention_mask": [[1]]},
    ],
    ids=str,
)
def test_wrong_goldens(consumer: Consumer, copy: Path, batch: Any) -> None:
    change_goldens(copy, lambda goldens: goldens.update(batches=[batch]))
    assert consumer.refuses(copy, "--self-test").startswith("goldens.json: input_ids ")


def test_a_golden_with_half_a_character(consumer: Consumer, copy: Path) -> None:
    change_goldens(copy, lambda goldens: goldens["texts"][0].update(text="a\ud800"))
    assert consumer.refuses(copy, "--self-test") == "goldens.json is not valid JSON. Fetch the artifact again."


def test_wrong_words(consumer: Consumer, tagger: Path, tmp_path: Path) -> None:
    copy = copy_artifact(tagger, tmp_path)

    def change(goldens: Any) -> None:
        words = [golden["words"] for golden in goldens["texts"]]
        words[1][1]["label"] = None
        words[1][2]["probability"] += 0.01
        words[3].pop()
        words[4][0]["word"] = "A"
        words[4][-1].update(label="O", probability=0.5)
        goldens["texts"][2]["logits"].pop()
        goldens["batches"][0]["logits"][0].pop()
        goldens["batches"][0]["logits"][1].pop()

    change_goldens(copy, change)
    result = consumer.run(copy, "--self-test")
    assert (result.code, result.out) == (1, "")
    lines = [line.removeprefix("self-test: ") for line in result.err.splitlines()]
    assert lines[0].startswith("text 2, word 2: wanted no label; got the label ")
    assert lines[1].startswith("text 2, word 3: wanted the probability 0.")
    assert lines[2:] == [
        "text 3: wanted logits of shape (1, 1, 4); got (1, 2, 4).",
        "text 4: the text has other words.",
        "text 5: the text has other words.",
        "batch 1: wanted logits of shape (2, 3, 4); got (2, 4, 4).",
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("words", None, "words must be a list."),
        ("words", [3, {}], "word is missing."),
        ("words", [{"word": 3}, {}], "word must be a string."),
        ("logits", [1, 2], "logits must hold numbers in equally long lists, 2 deep."),
        ("logits", [[1, 2], [1]], "logits must hold numbers in equally long lists, 2 deep."),
        ("input_ids", [[2, 3]], "input_ids must hold numbers in equally long lists, 1 deep."),
    ],
    ids=str,
)
def test_goldens_of_another_kind(
    consumer: Consumer, tagger: Path, tmp_path: Path, key: str, value: Any, said: str
) -> None:
    copy = copy_artifact(tagger, tmp_path)

    def change(goldens: Any) -> None:
        golden = goldens["texts"][1]
        golden[key] = value if key != "words" or value is None else value + golden["words"][2:]

    change_goldens(copy, change)
    assert consumer.refuses(copy, "--self-test") == f"goldens.json: {said}"


def test_a_label_of_another_kind(consumer: Consumer, copy: Path) -> None:
    change_goldens(copy, lambda goldens: goldens["texts"][0].update(label=3))
    assert consumer.refuses(copy, "--self-test") == "goldens.json: label must be a string or null."
