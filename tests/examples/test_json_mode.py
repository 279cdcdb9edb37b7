"""The JSON mode: requests in, answers out, and the same sentence from both programs for every wrong request."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.consumers import Consumer, copy_artifact, read_json, reseal, spoil_weights

INVALID = (
    "the line must be valid JSON, its numbers within a double's range; got something else. "
    "Write one JSON object a line."
)
DEEP = "the line must nest at most 64 deep; got more. Write a flat request."
ROWS = "Write [[...]], a row for each text."


def utf8(byte: str, offset: int) -> str:
    return f"the line must be valid UTF-8; got the byte 0x{byte} at offset {offset}. Convert it to UTF-8 first."


def surrogate(code: str, offset: int) -> str:
    return (
        f"the line must escape surrogates in pairs; got the lone surrogate U+{code} at offset {offset}. "
        "Escape the whole character, or write it in UTF-8."
    )


def not_an_object(kind: str) -> str:
    return f'the line must be a JSON object; got {kind}. Write {{"text": "..."}}.'


def keys(got: str) -> str:
    return (
        "the request must have the key text, or the keys input_ids and attention_mask, and no other; "
        f"got {got}. Name them so."
    )


def not_a_text(kind: str) -> str:
    return f"text must be a string; got {kind}. Send a request for each text."


def twice(key: str) -> str:
    return f"the line must give each key once; got {key} twice. Remove one."


def value(kind: str, column: int = 1, key: str = "input_ids") -> str:
    return (
        f"{key} must hold whole numbers of 64 bits, without fraction or exponent; got {kind} at row 0, "
        f"column {column}. Write ids as the tokenizer gives them."
    )


def batch(input_ids: str, attention_mask: str = "[[1,1,1]]") -> bytes:
    return f'{{"input_ids":{input_ids},"attention_mask":{attention_mask}}}'.encode()


WRONG = [
    (b"", INVALID),
    (b"{", INVALID),
    (b'{"text":"a"}}', INVALID),
    (b'{"text":"a"}\0', INVALID),
    (b'{"text":"a\0"}', INVALID),
    (b'{"text":"a\tb"}', INVALID),
    (b'\xef\xbb\xbf{"text":"a"}', INVALID),
    (b"{'text':'a'}", INVALID),
    (b'{"text":"a",}', INVALID),
    (b'{"text":"\\x"}', INVALID),
    (b'{"text":"\\ud80"}', INVALID),
    (b'{"text":"a"} // comment', INVALID),
    (b'{"text":NaN}', INVALID),
    (b'{"text":-Infinity}', INVALID),
    (b'{"text":1e400}', INVALID),
    (b'{"text":-1e400}', INVALID),
    (b'{"text":' + b"9" * 400 + b"}", INVALID),
    (b'{"text":' + b"9" * 100_000 + b"}", INVALID),
    (b'{"text":"\xff"}', utf8("ff", 9)),
    (b'{"text":"\xed\xa0\x80"}', utf8("ed", 9)),
    (b'{"text":"\xc3\xa9\x80"}', utf8("80", 11)),
    (b"[" * 65 + b"]" * 65, DEEP),
    (b"[" * 1_000_000, DEEP),
    (b'{"a":' * 1_000_000, DEEP),
    (b'{"text":"\\ud800"}', surrogate("D800", 9)),
    (b'{"text":"a\\uDFff\\uD800"}', surrogate("DFFF", 10)),
    (b'{"text":"\\ud83d\\ud83d\\ude00"}', surrogate("D83D", 9)),
    (b'{"text":"\\ud83d\\\\ude00"}', surrogate("D83D", 9)),
    (b'{"\\udead":1}', surrogate("DEAD", 2)),
    (b"[]", not_an_object("a list")),
    (b"[" * 64 + b"]" * 64, not_an_object("a list")),
    (b'"text"', not_an_object("a string")),
    (b"null", not_an_object("null")),
    (b"true", not_an_object("true or false")),
    (b"-0.5", not_an_object("a number")),
    (b"{}", keys("none")),
    (b'{"Text":"a"}', keys('"Text"')),
    (b'{"text":"a","id":1}', keys('"id", "text"')),
    (b'{"input_ids":[[2,3]]}', keys('"input_ids"')),
    (b'{"attention_mask":[[2,3]]}', keys('"attention_mask"')),
    (b'{"text":"a","input_ids":[[2]],"attention_mask":[[1]]}', keys('"attention_mask", "input_ids", "text"')),
    ('{"\U0001f600\x7fé\\n":1}'.encode(), keys('"\\ud83d\\ude00\\u007f\\u00e9\\n"')),
    (b'{"text":["a"]}', not_a_text("a list")),
    (b'{"text":null}', not_a_text("null")),
    (b'{"text":{}}', not_a_text("an object")),
    (b'{"text":false}', not_a_text("true or false")),
    (b'{"text":1.0}', not_a_text("a number")),
    (b'{"text":"a","text":"a"}', twice('"text"')),
    (b'{"text":{"b":1,"a":1,"a":2,"b":3},"text":1}', twice('"a"')),
    (b'{"text":[{"x":1},{"x":1},{"x":1,"\\u0078":2}]}', twice('"x"')),
    (batch("3"), f"input_ids must be a list of rows; got a number. {ROWS}"),
    (batch("[2,5,3]"), f"input_ids must be a list of rows; got a number at row 0. {ROWS}"),
    (batch("[[2,5,3],null]"), f"input_ids must be a list of rows; got null at row 1. {ROWS}"),
    (batch('[[2,5,3],"235"]'), f"input_ids must be a list of rows; got a string at row 1. {ROWS}"),
    (batch("[[2,5,3]]", "{}"), f"attention_mask must be a list of rows; got an object. {ROWS}"),
    (
        batch("[[2,5,3],[2,3]]"),
        "input_ids must have equally long rows; got 3 values in row 0 and 2 in row 1. Pad the shorter ones.",
    ),
    (batch("[[2,5.0,3]]"), value("another number")),
    (batch("[[2,5e0,3]]"), value("another number")),
    (batch("[[2,9223372036854775808,3]]"), value("another number")),
    (batch("[[2,18446744073709551616,3]]"), value("another number")),
    (batch("[[2,-9223372036854775809,3]]"), value("another number")),
    (batch("[[2,true,3]]"), value("true or false")),
    (batch("[[2,null,3]]"), value("null")),
    (batch('[[2,"5",3]]'), value("a string")),
    (batch("[[[2,5,3]]]"), value("a list", 0)),
    (batch("[[2,5,3]]", "[[1,1,true]]"), value("true or false", 2, "attention_mask")),
    (batch("[[2,5,3]]", "[[1,1.0,1]]"), value("another number", 1, "attention_mask")),
    (
        batch("[[2,5,3]]", "[[1,1]]"),
        "attention_mask must have the shape of input_ids, (1, 3); got (1, 2). Give one mask value for each id.",
    ),
    (
        batch("[]", "[[]]"),
        "attention_mask must have the shape of input_ids, (0, 0); got (1, 0). Give one mask value for each id.",
    ),
    (batch("[]", "[]"), "the batch must hold at least 1 row; got 0. Skip empty batches."),
    (
        batch("[[],[]]", "[[],[]]"),
        "the sequence must be 1 to 24 tokens long, padding included; got 0. Truncate the text as the tokenizer does.",
    ),
    (
        batch(f"[{[2] * 25}]", f"[{[1] * 25}]"),
        "the sequence must be 1 to 24 tokens long, padding included; got 25. Truncate the text as the tokenizer does.",
    ),
    *(
        (
            batch(f"[[2,{wrong},3]]", mask),
            f"input_ids must lie in 0 to 599 at every position, padding too; got {wrong}. "
            "Use the tokenizer of this artifact.",
        )
        for wrong in (-1, 600, 2**31, 2**32, 2**63 - 1, -(2**63))
        for mask in ("[[1,1,1]]", "[[1,0,1]]")
    ),
    *(
        (
            batch("[[2,5,3]]", f"[[1,{wrong},1]]"),
            f"attention_mask must hold 1 (token) and 0 (padding) only; got {wrong}.",
        )
        for wrong in (2, -1, 2**63 - 1)
    ),
]


def ask(consumer: Consumer, artifact: Path, *requests: bytes) -> list[Any]:
    result = consumer.run(artifact, "--json", stdin=b"".join(request + b"\n" for request in requests))
    assert result.err == ""
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == int(any("error" in answer for answer in answers))
    return answers


def test_wrong_requests(consumer: Consumer, artifact: Path) -> None:
    answers = ask(consumer, artifact, *(line for line, _ in WRONG))
    for (line, said), answer in zip(WRONG, answers, strict=True):
        assert answer == {"error": said}, line[:100]


def test_texts(consumer: Consumer, artifact: Path) -> None:
    goldens = read_json(artifact / "goldens.json")["texts"]
    answers = ask(consumer, artifact, *(json.dumps({"text": golden["text"]}).encode() for golden in goldens))
    for golden, answer in zip(goldens, answers, strict=True):
        assert list(answer) == ["label", "probability", "dropped", "input_ids"]
        for key in ("label", "dropped", "input_ids"):
            assert answer[key] == golden[key]
        assert answer["probability"] == pytest.approx(golden["probability"], abs=1e-4, rel=0)


def test_batches(consumer: Consumer, artifact: Path) -> None:
    goldens = read_json(artifact / "goldens.json")
    requests = [{key: golden[key] for key in ("input_ids", "attention_mask")} for golden in goldens["batches"]]
    answers = ask(consumer, artifact, *(json.dumps(request).encode() for request in requests))
    for golden, answer in zip(goldens["batches"], answers, strict=True):
        assert list(answer) == ["logits"]
        for got, wanted in zip(answer["logits"], golden["logits"], strict=True):
            assert got == pytest.approx(wanted, abs=goldens["tolerance"]["logits"], rel=0)


def test_words(consumer: Consumer, tagger: Path) -> None:
    goldens = read_json(tagger / "goldens.json")
    texts = goldens["texts"]
    answers = ask(consumer, tagger, *(json.dumps({"text": golden["text"]}).encode() for golden in texts))
    for golden, answer in zip(texts, answers, strict=True):
        assert list(answer) == ["words", "dropped", "input_ids"]
        assert answer["input_ids"] == golden["input_ids"]
        assert answer["dropped"] == golden["dropped"]
        assert [word["word"] for word in answer["words"]] == [word["word"] for word in golden["words"]]
        assert [word["label"] for word in answer["words"]] == [word["label"] for word in golden["words"]]
        wanted = [word["probability"] for word in golden["words"]]
        assert [word["probability"] for word in answer["words"]] == pytest.approx(wanted, abs=1e-6, rel=0)
    # One text is empty, one is cut in the middle.
    assert answers[0]["words"] == []
    assert answers[-1]["words"][-1] == {"word": "word", "label": None, "probability": 0}
    golden = goldens["batches"][0]
    request = {key: golden[key] for key in ("input_ids", "attention_mask")}
    (answer,) = ask(consumer, tagger, json.dumps(request).encode())
    for got, wanted in zip(answer["logits"], golden["logits"], strict=True):
        assert [pytest.approx(row, abs=1e-6, rel=0) for row in wanted] == got


def test_ways_to_write_a_request(consumer: Consumer, artifact: Path) -> None:
    """White space around, escapes, a carriage return at the end, keys in any order, minus zero: all the same."""
    same = [b'{"text":"a \xf0\x9f\x98\x80"}', b'\t{ "text" : "\\u0061\\u0020\\ud83d\\uDE00" } \r']
    answers = ask(consumer, artifact, *same)
    assert answers[0] == answers[1]
    answers = ask(
        *(consumer, artifact, batch("[[2,0,3]]", "[[1,0,1]]")),
        b'{"attention_mask":[[1,-0,1]],"input_ids":[[2,-0,3]]}',
    )
    assert answers[0] == answers[1]
    assert "logits" in answers[0]


@pytest.mark.parametrize("kind", ["artifact", "tagger"])
def test_hostile_texts(
    cpp_consumer: Consumer, python_consumer: Consumer, request: pytest.FixtureRequest, kind: str
) -> None:
    chosen: Path = request.getfixturevalue(kind)
    texts = [
        *("", " ", "\t\n\v\f\r ", "\0", "\0\0 a\0b", "<s> </s> <cls> <sep> <pad> <unk> <mask> <0x41>"),
        *("\u2581", "a\u2581b \u2581\u2581 \u2581c", "\u00a0\u2028\u3000\ufeff\x85\x1c", "e\u0301" + "\u0301" * 500),
        *(
            "שלום \u202eعالم\u202c",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1fa",
            "\ufffe\uffff\U0010ffff",
        ),
        *("x" * 100_000, "the licence " * 9_000, " " * 100_000 + "a", "\u0301" * 50_000),
    ]
    requests = [json.dumps({"text": text}, ensure_ascii=number % 2 == 0).encode() for number, text in enumerate(texts)]
    got, wanted = (ask(consumer, chosen, *requests) for consumer in (cpp_consumer, python_consumer))
    for one, other in zip(got, wanted, strict=True):
        assert "error" not in one
        assert (one["input_ids"], one["dropped"]) == (other["input_ids"], other["dropped"])
    # White space and U+0000 alone are the empty text.
    assert got[1:4] == got[:1] * 3


@pytest.mark.parametrize("size", [500_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_long_lines(cpp_consumer: Consumer, python_consumer: Consumer, artifact: Path, size: int) -> None:
    """A line of many bytes is answered, or refused, like any other; the request after it is answered too."""
    requests = [
        b'{"text":"' + b"the licence \\u00e9\\t" * (size // 20) + b'"}',
        batch("[[" + "1," * (size // 2) + "1]]", "[[1]]"),
        b'{"text":"' + b"x" * size,
        b'{"text":"short"}',
    ]
    got, wanted = (ask(consumer, artifact, *requests) for consumer in (cpp_consumer, python_consumer))
    assert [next(iter(answer)) for answer in got] == ["label", "error", "error", "label"]
    assert got[0]["dropped"] > size // 10
    for one, other in zip(got, wanted, strict=True):
        assert {**one, "probability": 0} == {**other, "probability": 0}


def test_an_answer_comes_before_the_next_request(consumer: Consumer, artifact: Path) -> None:
    with consumer.started(artifact, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for request, key in ((b'{"text":"one"}\n', "label"), (b"wrong\n", "error"), (b'{"text":"two"}\n', "label")):
            process.stdin.write(request)
            process.stdin.flush()
            assert key in json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait() == 1


def test_lines(consumer: Consumer, artifact: Path) -> None:
    for stdin, count in ((b"", 0), (b'{"text":""}', 1), (b'{"text":""}\n', 1), (b'{"text":""}\n' * 70, 70)):
        result = consumer.run(artifact, "--json", stdin=stdin)
        assert (result.code, result.out.count("\n"), result.err) == (0, count, "")
    assert (
        consumer.run(artifact, "--json", stdin=b"\n").out
        == json.dumps({"error": INVALID}, separators=(",", ":")) + "\n"
    )


def test_a_model_that_fails_is_told_and_no_end(consumer: Consumer, artifact: Path, tmp_path: Path) -> None:
    copy = copy_artifact(artifact, tmp_path)
    spoil_weights(copy)
    reseal(copy)
    said = {"error": f"{consumer.model} answered with numbers that are not finite."}
    assert ask(consumer, copy, b'{"text":"a"}', batch("[[2,5,3]]")) == [said, said]
