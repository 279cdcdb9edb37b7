"""Both consumers answer as the artifact's goldens say, on every text that there is, and alike."""

import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from export.contract import normalise_text
from tests.examples.consumers import (
    Consumer,
    Result,
    change_goldens,
    change_metadata,
    copy_artifact,
    read_json,
    reseal,
    spoil_weights,
)
from tests.examples.fuzz import make_text

PROBABILITY_TOLERANCE = 1e-4


def parse(result: Result) -> list[tuple[str, float]]:
    assert result.code == 0, result
    answers = []
    for line in result.out.splitlines():
        label, probability = line.split("\t")
        assert len(probability) == len("0.123456")
        answers.append((label, float(probability)))
    return answers


def assert_alike(got: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    assert [label for label, _ in got] == [label for label, _ in wanted]
    assert [p for _, p in got] == pytest.approx([p for _, p in wanted], abs=PROBABILITY_TOLERANCE, rel=0)


def test_goldens(consumer: Consumer, artifact: Path) -> None:
    goldens = read_json(artifact / "goldens.json")["texts"]
    # A line feed is white space to the text rules, so a space in its place changes nothing.
    lines = [golden["text"].replace("\n", " ") for golden in goldens]
    result = consumer.run(artifact, stdin="".join(f"{line}\n" for line in lines).encode())
    assert_alike(parse(result), [(golden["label"], golden["probability"]) for golden in goldens])
    cut = [number for number, golden in enumerate(goldens, start=1) if golden["dropped"]]
    assert [int(line.split()[2]) for line in result.err.splitlines()] == cut


def test_self_test(consumer: Consumer, artifact: Path) -> None:
    goldens = read_json(artifact / "goldens.json")
    result = consumer.run(artifact, "--self-test")
    assert (result.code, result.err) == (0, "")
    said, difference = result.out.rstrip("\n").rsplit(" ", 1)
    texts, batches = len(goldens["texts"]), len(goldens["batches"])
    assert said == f"self-test: {texts} texts and {batches} batches agree, largest difference"
    assert float(difference) <= goldens["tolerance"]["logits"]


def test_self_test_says_what_differs(consumer: Consumer, artifact: Path, tmp_path: Path) -> None:
    copy = copy_artifact(artifact, tmp_path)

    def change(goldens: Any) -> None:
        texts = goldens["texts"]
        texts[0]["label"] = "no label"
        texts[1]["probability"] += 0.01
        texts[2]["logits"][-1] += 0.5
        texts[3]["input_ids"][0] += 1
        texts[4]["dropped"] += 1
        texts[5]["logits"].pop()
        goldens["batches"][0]["logits"][0][0] -= 0.5

    change_goldens(copy, change)
    result = consumer.run(copy, "--self-test")
    assert (result.code, result.out) == (1, "")
    assert [line.split(":")[1].strip() for line in result.err.splitlines()] == [
        *(f"text {number}" for number in range(1, 7)),
        "batch 1",
    ]
    reasons = ("label", "probability", "logits differ by 5.00e-01", "other ids", "other ids", "shape", "logits differ")
    for line, reason in zip(result.err.splitlines(), reasons, strict=True):
        assert reason in line


@pytest.mark.parametrize("key", ["texts", "batches"])
def test_self_test_without_goldens_fails(consumer: Consumer, artifact: Path, tmp_path: Path, key: str) -> None:
    copy = copy_artifact(artifact, tmp_path)
    change_goldens(copy, lambda goldens: goldens.update({key: []}))
    assert "goldens.json must hold texts and batches" in consumer.refuses(copy, "--self-test")


def test_nan_fails(consumer: Consumer, artifact: Path, tmp_path: Path) -> None:
    copy = copy_artifact(artifact, tmp_path)
    spoil_weights(copy)
    reseal(copy)
    assert "not finite" in consumer.refuses(copy)
    assert "not finite" in consumer.refuses(copy, "--self-test")


def test_hostile_texts(cpp_consumer: Consumer, python_consumer: Consumer, artifact: Path) -> None:
    texts = [
        "",
        " ",
        "\t\v\f\r ",
        "\0",
        "\0\0 a\0b",
        "<cls>",
        "<cls> <sep> <pad> <unk> <mask> <0x41>",
        "\u2581",
        "a\u2581b \u2581\u2581",
        "\u00a0\u2028\u3000\ufeff",
        "e\u0301 é ﬁ 日本語 😀 \U0010ffff",
        "x" * 100_000,
        "the licence " * 8_000,
    ]
    stdin = "".join(f"{text}\n" for text in texts).encode()
    results = [consumer.run(artifact, stdin=stdin) for consumer in (cpp_consumer, python_consumer)]
    answers = [parse(result) for result in results]
    assert len(answers[0]) == len(texts)
    assert_alike(answers[0], answers[1])
    # The numbers of the dropped pieces agree, so the tokenizers do.
    assert results[0].err == results[1].err
    # The artifact's 24 tokens hold none of these: typed specials, text without pieces, and the two long ones.
    assert [int(line.split()[2]) for line in results[0].err.splitlines()] == [7, 11, 12, 13]
    # White space and U+0000 alone are the empty text.
    assert_alike(answers[0][1:4], answers[0][:1] * 3)


def test_generated_texts(cpp_consumer: Consumer, python_consumer: Consumer, artifact: Path) -> None:
    generator = random.Random(2)
    pools = [
        [chr(code) for code in range(128) if chr(code) != "\n"],
        ["the", "licence", "License", " ", "<cls>", "\u2581", "\0", "\t", "\r", "\u00a0", "\u200b", "\u0301"],
        [chr(code) for code in range(0x80, 0x800)],
        [chr(code) for code in range(0x800, 0x20000, 11) if not 0xD800 <= code <= 0xDFFF],
    ]
    texts = []
    for _ in range(1_000):
        chosen = generator.sample(pools, generator.randint(1, 3))
        texts.append("".join(generator.choice(generator.choice(chosen)) for _ in range(generator.choice((2, 9, 60)))))
    stdin = "\n".join(texts).encode()
    results = [consumer.run(artifact, stdin=stdin) for consumer in (cpp_consumer, python_consumer)]
    answers = [parse(result) for result in results]
    assert len(answers[0]) == len(texts)
    assert_alike(answers[0], answers[1])
    assert results[0].err == results[1].err


def test_temperature_and_threshold(consumer: Consumer, artifact: Path, tmp_path: Path) -> None:
    golden = next(golden for golden in read_json(artifact / "goldens.json")["texts"] if golden["text"] == "x")
    logits = np.array(golden["logits"])
    for temperature in (0.25, 1, 3):
        exponentials = np.exp(logits / temperature)
        probability = exponentials.max() / exponentials.sum()
        for threshold, label in (
            (0, golden["label"]),
            (probability - 0.001, golden["label"]),
            (probability + 0.001, ""),
        ):
            copy = copy_artifact(artifact, tmp_path / f"{temperature}-{threshold}")
            change_metadata(copy, partial(dict.update, temperature=temperature, threshold=float(threshold)))
            assert_alike(parse(consumer.run(copy, "x")), [(label, probability)])


def test_words(consumer: Consumer, tagger: Path) -> None:
    texts = [golden for golden in read_json(tagger / "goldens.json")["texts"] if "\0" not in golden["text"]]
    wanted = [
        "".join(f"{word['word']}\t{word['label'] or ''}\t{word['probability']:.6f}\n" for word in golden["words"])
        + "\n"
        for golden in texts
    ]
    result = consumer.run(tagger, *(golden["text"] for golden in texts))
    assert (result.code, result.out) == (0, "".join(wanted))
    cut = [number for number, golden in enumerate(texts, start=1) if golden["dropped"]]
    assert [int(line.split()[2]) for line in result.err.splitlines()] == cut
    assert consumer.run(tagger, "--self-test").code == 0


def test_words_have_the_ids_of_the_whole_text(artifact: Path) -> None:
    """What both consumers rely on: no piece reaches from one word into the next."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(artifact / "tokenizer.model"))
    generator = random.Random(3)
    for _ in range(2_000):
        text = normalise_text(re.sub("[\ud800-\udfff]", "", make_text(generator)))
        words = text.split(" ") if text else []
        assert [piece for word in words for piece in processor.encode(word)] == processor.encode(text)


def test_too_long_is_told(consumer: Consumer, artifact: Path) -> None:
    limit = read_json(artifact / "manifest.json")["metadata"]["limits"]["sequence_length"]["max"]
    # Each emoji is a piece or several; none of a row of different ones merges with the next.
    text = "".join(chr(0x1F300 + i) for i in range(limit))
    result = consumer.run(artifact, "short", text)
    assert result.code == 0
    assert result.err.startswith(
        f"classify: text 2 is too long: the model read its first {limit - 2} pieces and not the "
    )


@pytest.mark.parametrize(
    ("raw", "byte", "offset"),
    [
        (b"ab\xff", "ff", 2),
        (b"\xed\xa0\x80", "ed", 0),
        (b"\xe2\x82a", "e2", 0),
        (b"\xf4\x90\x80\x80", "f4", 0),
        (b"\xc3\xa9\x80", "80", 2),
    ],
)
def test_invalid_utf8(consumer: Consumer, artifact: Path, raw: bytes, byte: str, offset: int) -> None:
    said = (
        f"classify: text 2: the text must be valid UTF-8; got the byte 0x{byte} at offset {offset}. "
        "Convert it to UTF-8 first.\n"
    )
    result = consumer.run(artifact, stdin=b"good\n" + raw + b"\nnever read\n")
    assert (result.code, result.err) == (1, said)
    assert result.out.count("\n") == 1
    assert consumer.run(artifact, "good", raw, "never read") == result


def test_lines(consumer: Consumer, artifact: Path) -> None:
    assert consumer.run(artifact).out == ""
    for stdin, count in ((b"a", 1), (b"a\n\n", 2), (b"a\n" * 70, 70)):
        result = consumer.run(artifact, stdin=stdin)
        assert (result.code, result.out.count("\n"), result.err) == (0, count, "")
    windows = parse(consumer.run(artifact, stdin=b"the licence\r\nMIT\r\n"))
    assert_alike(windows, parse(consumer.run(artifact, "the licence", "MIT")))


def test_a_line_is_answered_before_the_next_one_comes(consumer: Consumer, artifact: Path) -> None:
    with consumer.started(artifact) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(b"one line\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait() == 0
