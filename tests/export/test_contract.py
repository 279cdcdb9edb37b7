"""The contract: text rules, what a loader refuses, metadata, canonical JSON."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    Limits,
    build_metadata,
    canonical_json,
    check_inputs,
    decode_text,
    normalise_text,
)

LIMITS = Limits(max_length=6, vocab_size=10)
WHITE_SPACE = "\t\n\v\f\r "
# White space for Python, JavaScript or C++, and ordinary characters for the contract.
ORDINARY = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\u2581"


def slow_normalise(text: str) -> str:
    """Apply the text rules character by character, in bytes, as a C++ program would."""
    out = bytearray()
    for byte in text.encode("utf-8"):
        if byte == 0 or 9 <= byte <= 13 or byte == 32:
            if out and out[-1] != 32:
                out.append(32)
        else:
            out.append(byte)
    if out and out[-1] == 32:
        out.pop()
    return out.decode("utf-8")


class TestDecodeText:
    def test_valid(self) -> None:
        text = "caf\u00e9 \U0001f600\0\ufeff"
        assert decode_text(text.encode("utf-8")) == text

    def test_a_byte_order_mark_is_a_character(self) -> None:
        assert decode_text(b"\xef\xbb\xbfMIT") == "\ufeffMIT"

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (b"ab\xff", "got byte 0xff at offset 2 (invalid start byte)"),
            (b"caf\xc3", "got byte 0xc3 at offset 3 (unexpected end of data)"),
            (b"\xc0\x80", "got byte 0xc0 at offset 0 (invalid start byte)"),
            (b"x\xed\xa0\x80", "got byte 0xed at offset 1 (invalid continuation byte)"),
            (b"\xf4\x90\x80\x80", "got byte 0xf4 at offset 0 (invalid continuation byte)"),
        ],
        ids=["latin-1", "cut", "overlong", "surrogate", "above-10ffff"],
    )
    def test_invalid(self, raw: bytes, message: str) -> None:
        whole = f"^text must be valid UTF-8; {re.escape(message)}. Convert the text to UTF-8 first.$"
        with pytest.raises(ValueError, match=whole):
            decode_text(raw)


class TestNormaliseText:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("", ""),
            (" \t\r\n\v\f\0", ""),
            ("MIT", "MIT"),
            ("  The\tMIT \r\n\v\f Licence\n", "The MIT Licence"),
            ("a\0b", "a b"),
            ("a \0\0 b\0", "a b"),
            ("\u2581a\u2581", "\u2581a\u2581"),
        ],
    )
    def test_examples(self, text: str, wanted: str) -> None:
        assert normalise_text(text) == wanted

    @pytest.mark.parametrize("space", WHITE_SPACE, ids=lambda space: f"U+{ord(space):04X}")
    def test_white_space(self, space: str) -> None:
        assert normalise_text(f"{space}a{space}{space}b{space}") == "a b"

    @pytest.mark.parametrize("char", ORDINARY, ids=lambda char: f"U+{ord(char):04X}")
    def test_no_other_white_space(self, char: str) -> None:
        text = f"{char}a{char}{char}b{char}"
        assert normalise_text(text) == text

    @given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0" + WHITE_SPACE + ORDINARY)))
    @settings(deadline=None)
    def test_equals_the_slow_form_and_is_idempotent(self, text: str) -> None:
        normalised = normalise_text(text)
        assert normalised == slow_normalise(text)
        assert normalise_text(normalised) == normalised

    def test_lone_surrogate(self) -> None:
        with pytest.raises(ValueError, match=r"got the lone surrogate U\+DC80 at character 2\. Decode the text from"):
            normalise_text("ab\udc80")


class TestCheckInputs:
    @pytest.mark.parametrize("shape", [(1, 1), (3, 4), (2, 6)], ids=str)
    def test_good(self, shape: tuple[int, int]) -> None:
        ids = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape) % LIMITS.vocab_size
        check_inputs(ids, np.ones(shape, dtype=np.int64), LIMITS)
        check_inputs(ids, np.zeros(shape, dtype=np.int64), LIMITS)

    @pytest.mark.parametrize("name", [INPUT_IDS, ATTENTION_MASK])
    @pytest.mark.parametrize(
        ("tensor", "got"),
        [
            (np.ones((2, 3), dtype=np.int32), "(2, 3) int32"),
            (np.ones((2, 3), dtype=np.float32), "(2, 3) float32"),
            (np.ones((2, 3), dtype=np.bool_), "(2, 3) bool"),
            (np.ones(3, dtype=np.int64), "(3,) int64"),
            (np.ones((1, 2, 3), dtype=np.int64), "(1, 2, 3) int64"),
        ],
        ids=["int32", "float32", "bool", "rank-1", "rank-3"],
    )
    def test_type_and_rank(self, name: str, tensor: np.ndarray, got: str) -> None:
        inputs = {INPUT_IDS: np.ones((2, 3), dtype=np.int64), ATTENTION_MASK: np.ones((2, 3), dtype=np.int64)}
        inputs[name] = tensor
        with pytest.raises(ValueError, match=re.escape(f"{name} must be (batch, sequence) int64; got {got}.")):
            check_inputs(inputs[INPUT_IDS], inputs[ATTENTION_MASK], LIMITS)

    @pytest.mark.parametrize("mask_shape", [(1, 3), (2, 1), (3, 2)], ids=str)
    def test_shapes_never_broadcast(self, mask_shape: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match=r"must have the shape of input_ids, \(2, 3\); got"):
            check_inputs(np.ones((2, 3), dtype=np.int64), np.ones(mask_shape, dtype=np.int64), LIMITS)

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            ((0, 3), "the batch must hold at least 1 row; got 0"),
            ((2, 0), "the sequence must be 1 to 6 tokens long, padding included; got 0"),
            ((2, 7), "the sequence must be 1 to 6 tokens long, padding included; got 7"),
        ],
        ids=str,
    )
    def test_sizes(self, shape: tuple[int, int], message: str) -> None:
        tensor = np.ones(shape, dtype=np.int64)
        with pytest.raises(ValueError, match=message):
            check_inputs(tensor, tensor, LIMITS)

    @pytest.mark.parametrize("wrong", [-1, 10, 1 << 40])
    @pytest.mark.parametrize("keep", [0, 1], ids=["masked", "token"])
    def test_ids_outside_the_vocabulary(self, wrong: int, keep: int) -> None:
        ids = np.array([[1, 2, 3], [4, 5, wrong]], dtype=np.int64)
        mask = np.array([[1, 1, 1], [1, 1, keep]], dtype=np.int64)
        with pytest.raises(ValueError, match=rf"must lie in 0 … 9 at every position, padding too; got {wrong}\."):
            check_inputs(ids, mask, LIMITS)

    @pytest.mark.parametrize("wrong", [-1, 2])
    def test_mask_values(self, wrong: int) -> None:
        with pytest.raises(ValueError, match=rf"must hold 1 \(token\) and 0 \(padding\) only; got {wrong}\."):
            check_inputs(np.ones((1, 3), dtype=np.int64), np.array([[1, 0, wrong]], dtype=np.int64), LIMITS)


def metadata_of(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "task": "text-classification",
        "per_token": False,
        "labels": ["MIT", "ISC"],
        "activation": "softmax",
        "temperature": 0.8,
        "threshold": 0.25,
        "pooling": "mean",
        "limits": LIMITS,
        "profile": "cpu",
        "tokenizer_sha256": "a" * 64,
        "config_sha256": "b" * 64,
        "weights_sha256": "c" * 64,
        "versions": {"torch": "2.13.0"},
        "minimum_runtime": {"onnxruntime": "1.23.2"},
    }
    return build_metadata(**{**facts, **changes})


def test_metadata_of_a_tagger_says_what_is_answered() -> None:
    metadata = metadata_of(task="token-classification", per_token=True, pooling=None)
    assert metadata["outputs"]["logits"]["axes"] == ["batch_size", "sequence_length", "labels"]
    assert metadata["pooling"] is None
    assert metadata["empty_row"] == "zeros, as all padding"
    assert "its answer is that of its first piece" in metadata["text"]["words"]
    assert "words" not in metadata_of()["text"]


def test_metadata_states_the_whole_contract() -> None:
    metadata = metadata_of()
    assert metadata == json.loads(canonical_json(metadata))
    assert metadata["format"] == 3
    assert (metadata["activation"], metadata["temperature"], metadata["threshold"]) == ("softmax", 0.8, 0.25)
    assert metadata["labels"] == ["MIT", "ISC"]
    assert metadata["inputs"] == {
        "input_ids": {"dtype": "int64", "axes": ["batch_size", "sequence_length"]},
        "attention_mask": {"dtype": "int64", "axes": ["batch_size", "sequence_length"], "token": 1, "padding": 0},
    }
    assert metadata["outputs"] == {"logits": {"dtype": "float32", "axes": ["batch_size", "labels"]}}
    assert metadata["limits"] == {
        "batch_size": {"min": 1},
        "sequence_length": {"min": 1, "max": 6},
        "input_ids": {"min": 0, "max": 9},
    }
    assert metadata["text"]["truncation"] == "the first 4 pieces are kept"
    assert metadata["tokenizer"] == {
        "kind": "sentencepiece-bpe",
        "file": "tokenizer.model",
        "sha256": "a" * 64,
        "reserved_ids": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
    }
    assert (metadata["config_sha256"], metadata["weights_sha256"]) == ("b" * 64, "c" * 64)
    assert metadata["versions"] == {"torch": "2.13.0"}
    assert metadata["profile"] == "cpu"
    assert metadata["minimum_runtime"] == {"onnxruntime": "1.23.2"}


def test_canonical_json() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "é\0"}) == '{"a":"\\u00e9\\u0000","b":[1,2.5,null]}'
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical_json({"a": number})
