"""The contract between a Ferry artifact and whoever loads it: tensors, text rules, reserved ids and limits.

Everything a consumer must know is defined here once, written into the metadata of every model file and into the
manifest, and enforced by every loader of ours. The text rules are simple enough to be written again, byte for byte, in
any language: they touch ASCII white space and U+0000 only.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# 2: probabilities are those of logits / temperature, labels below the threshold are null, and tokens may be labelled.
# 3: model.pt2 is the third model file.
FORMAT = 3

TEXT_CLASSIFICATION = "text-classification"
TOKEN_CLASSIFICATION = "token-classification"

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
LOGITS = "logits"
BATCH_AXIS = "batch_size"
SEQUENCE_AXIS = "sequence_length"

# The metadata is one JSON document: a key of ONNX's metadata_props, an extra file of the two archives of torch's.
ONNX_METADATA_KEY = "ferry"
TORCHSCRIPT_METADATA_FILE = "ferry.json"
PT2_METADATA_FILE = "ferry.json"

TOKENIZER_FILE = "tokenizer.model"
# The same tokenizer for the Hugging Face ecosystem.
TOKENIZER_JSON_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
RESERVED_IDS = {"pad": PAD_ID, "unk": UNK_ID, "cls": CLS_ID, "sep": SEP_ID, "mask": MASK_ID}
# The label of a token that is asked for no answer.
NO_ANSWER = -100
# cls and sep stand around the pieces of every text, so a text has at least these two tokens.
SPECIAL_TOKENS_PER_TEXT = 2

# Python's, JavaScript's and C++'s own notions of white space differ, so the contract has its own.
_WHITE_SPACE = re.compile("[\t-\r ]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_text(raw: bytes) -> str:
    """Decode the bytes of a text.

    Raises:
        ValueError: if the bytes are not valid UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text must be valid UTF-8; got byte 0x{raw[error.start]:02x} at offset {error.start} ({error.reason}). "
            "Convert the text to UTF-8 first."
        ) from None


def normalise_text(text: str) -> str:
    """Apply the text rules: U+0000 becomes a space, runs of U+0009–U+000D and U+0020 one space, ends are stripped.

    Raises:
        ValueError: if the text holds a lone surrogate, which has no UTF-8 form.
    """
    lone = _SURROGATE.search(text)
    if lone is not None:
        raise ValueError(
            f"text must be valid Unicode; got the lone surrogate U+{ord(lone[0]):04X} at character {lone.start()}. "
            "Decode the text from UTF-8 first."
        )
    return _WHITE_SPACE.sub(" ", text.replace("\0", " ")).strip(" ")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a model accepts: sequence lengths 1 … max_length, padding included, and ids 0 … vocab_size − 1."""

    max_length: int
    vocab_size: int


def check_inputs(input_ids: npt.NDArray[Any], attention_mask: npt.NDArray[Any], limits: Limits) -> None:
    """Refuse a batch that the contract does not allow, at masked positions too.

    Args:
        input_ids: (batch, sequence) int64, each 0 … vocab_size − 1.
        attention_mask: (batch, sequence) int64, 1 at a token and 0 at padding.
        limits: the limits of the model that is about to run.

    Raises:
        ValueError: names what was wrong, what was got, what was wanted and what to do.
    """
    for name, tensor in ((INPUT_IDS, input_ids), (ATTENTION_MASK, attention_mask)):
        if tensor.ndim != 2 or tensor.dtype != np.int64:
            raise ValueError(
                f"{name} must be (batch, sequence) int64; got {tensor.shape} {tensor.dtype}. "
                'Reshape it, or cast it with .astype("int64").'
            )
    if input_ids.shape != attention_mask.shape:
        raise ValueError(
            f"{ATTENTION_MASK} must have the shape of {INPUT_IDS}, {input_ids.shape}; got {attention_mask.shape}. "
            "Give one mask value for each id."
        )
    batch, length = input_ids.shape
    if batch < 1:
        raise ValueError("the batch must hold at least 1 row; got 0. Skip empty batches.")
    if not 1 <= length <= limits.max_length:
        raise ValueError(
            f"the sequence must be 1 to {limits.max_length} tokens long, padding included; got {length}. "
            "Truncate the text as the tokenizer does."
        )
    lowest, highest = int(input_ids.min()), int(input_ids.max())
    if lowest < 0 or highest >= limits.vocab_size:
        raise ValueError(
            f"{INPUT_IDS} must lie in 0 … {limits.vocab_size - 1} at every position, padding too; "
            f"got {lowest if lowest < 0 else highest}. Use the tokenizer of this artifact and pad with {PAD_ID}."
        )
    if not np.isin(attention_mask, (0, 1)).all():
        wrong = attention_mask[~np.isin(attention_mask, (0, 1))].flat[0]
        raise ValueError(f"{ATTENTION_MASK} must hold 1 (token) and 0 (padding) only; got {wrong}.")


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces, ASCII only. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def build_metadata(
    *,
    task: str,
    per_token: bool,
    labels: list[str],
    activation: str,
    temperature: float,
    threshold: float,
    pooling: str | None,
    limits: Limits,
    profile: str,
    tokenizer_sha256: str,
    config_sha256: str,
    weights_sha256: str,
    versions: dict[str, str],
    minimum_runtime: dict[str, str],
) -> dict[str, Any]:
    """Build the document that every model file carries and that the manifest repeats under `metadata`.

    Args:
        task: the task's name.
        per_token: whether each token has logits of its own, instead of each row.
        labels: in the order of the logits.
        activation: what makes probabilities of logits / temperature.
        temperature: above 0; 1 changes nothing. Source: "On Calibration of Modern Neural Networks", section 4.2.
        threshold: a best probability below it means none of the labels; 0 turns that off.
        pooling: the kind, None for a task that pools nothing.
        limits: what the model accepts.
        profile: what the ONNX file is written for, a key of PROFILES.
        tokenizer_sha256: of tokenizer.model.
        config_sha256: of config.json's canonical form.
        weights_sha256: of model.safetensors.
        versions: of the libraries that exported.
        minimum_runtime: the oldest runtimes that load the files.
    """
    axes = [BATCH_AXIS, SEQUENCE_AXIS]
    answered = axes if per_token else [BATCH_AXIS]
    words = {"words": "a word is a run of characters other than white space; its answer is that of its first piece"}
    return {
        "format": FORMAT,
        "task": task,
        "inputs": {
            INPUT_IDS: {"dtype": "int64", "axes": axes},
            ATTENTION_MASK: {"dtype": "int64", "axes": axes, "token": 1, "padding": 0},
        },
        "outputs": {LOGITS: {"dtype": "float32", "axes": [*answered, "labels"]}},
        "limits": {
            "batch_size": {"min": 1},
            "sequence_length": {"min": 1, "max": limits.max_length},
            INPUT_IDS: {"min": 0, "max": limits.vocab_size - 1},
        },
        "labels": labels,
        "activation": activation,
        "temperature": temperature,
        "threshold": threshold,
        "pooling": pooling and {"kind": pooling, "pools": "every token with attention_mask 1, cls and sep included"},
        "empty_row": "zeros, as all padding" if per_token else "the head applied to zeros",
        "text": {
            "encoding": "UTF-8; invalid UTF-8 is an error",
            "nul": "U+0000 becomes a space, first",
            "white_space": "runs of U+0009 to U+000D and U+0020 become one space; ends are stripped",
            "special_tokens": "cls + pieces + sep",
            "truncation": f"the first {limits.max_length - SPECIAL_TOKENS_PER_TEXT} pieces are kept",
            **(words if per_token else {}),
        },
        "tokenizer": {
            "kind": "sentencepiece-bpe",
            "file": TOKENIZER_FILE,
            "sha256": tokenizer_sha256,
            "reserved_ids": RESERVED_IDS,
        },
        "profile": profile,
        "config_sha256": config_sha256,
        "weights_sha256": weights_sha256,
        "versions": versions,
        "minimum_runtime": minimum_runtime,
    }
