"""Faults of the text half: another tokenizer, another truncation, a file of one ecosystem that says something else."""

import json
from collections.abc import Callable
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.files import dump_json
from export.tokenizer import huggingface_tokenizer, train_tokenizer
from tests.sabotage.artifact import VOCABULARY, Contents, sample_texts
from tests.sabotage.faults.fault import Fault, Plant
from tests.sabotage.tools import edit_json, limits_of


def _follow(contents: Contents) -> None:
    """Let tokenizer.json follow from tokenizer.model."""
    text = huggingface_tokenizer(contents[TOKENIZER_FILE], max_length=limits_of(contents).max_length)
    contents[TOKENIZER_JSON_FILE] = text.encode()


def _another(contents: Contents) -> None:
    contents[TOKENIZER_FILE] = train_tokenizer(sample_texts(5, 200), vocab_size=VOCABULARY)
    _follow(contents)


def _larger(contents: Contents) -> None:
    contents[TOKENIZER_FILE] = train_tokenizer(sample_texts(0, 200), vocab_size=VOCABULARY + 10)
    _follow(contents)


def _edited(edit: Callable[[Any], object]) -> Plant:
    """Change tokenizer.model itself, a protobuf message, and let tokenizer.json follow."""

    def plant(contents: Contents) -> None:
        model = sentencepiece_model_pb2.ModelProto.FromString(contents[TOKENIZER_FILE])
        edit(model)
        contents[TOKENIZER_FILE] = model.SerializeToString()
        _follow(contents)

    return plant


def _swap(first: int, second: int) -> Callable[[Any], object]:
    def edit(model: Any) -> None:
        one, two = model.pieces[first], model.pieces[second]
        one.piece, two.piece = two.piece, one.piece

    return edit


def _json(edit: Callable[[Any], object]) -> Plant:
    return lambda contents: edit_json(contents, TOKENIZER_JSON_FILE, edit)


def _of_another(contents: Contents) -> None:
    model = train_tokenizer(sample_texts(5, 200), vocab_size=VOCABULARY)
    contents[TOKENIZER_JSON_FILE] = huggingface_tokenizer(model, max_length=limits_of(contents).max_length).encode()


def _config(contents: Contents) -> None:
    document = json.loads(contents[TOKENIZER_CONFIG_FILE])
    contents[TOKENIZER_CONFIG_FILE] = dump_json({**document, "model_max_length": 512}).encode()


def _normalised(model: Any) -> None:
    model.normalizer_spec.name = "nmt_nfkc_cf"
    model.normalizer_spec.remove_extra_whitespaces = True


def _trace(model: Any) -> None:
    model.trainer_spec.input.append("/home/me/mails.txt")


# Each: its name, the kind, how it is planted, whether the function moves, and the check of structure that refuses it.
_ROWS: tuple[tuple[str, str, Plant, bool, str], ...] = (
    ("another", "another tokenizer of the same size", _another, True, ""),
    ("larger", "another tokenizer of the same size", _larger, True, "tokenizer"),
    ("pieces-swapped", "another tokenizer of the same size", _edited(_swap(265, 266)), True, ""),
    ("byte-pieces-swapped", "another tokenizer of the same size", _edited(_swap(200, 201)), True, "goldens"),
    ("normalised", "another tokenizer of the same size", _edited(_normalised), False, "goldens"),
    ("source-path", "source path or text in a file", _edited(_trace), False, ""),
    ("json-of-another", "tokenizers of two files differ", _of_another, False, "tokenizer"),
    (
        "json-truncation",
        "other truncation",
        _json(lambda t: t["truncation"].update(max_length=512)),
        False,
        "tokenizer",
    ),
    (
        "json-truncation-side",
        "other truncation",
        _json(lambda t: t["truncation"].update(direction="Left")),
        False,
        "tokenizer",
    ),
    (
        "json-normaliser",
        "another tokenizer of the same size",
        _json(lambda t: t.update(normalizer={"type": "Lowercase"})),
        False,
        "tokenizer",
    ),
    (
        "json-added-token",
        "tokenizers of two files differ",
        _json(lambda t: t["added_tokens"].append({"id": 299, "content": "x"})),
        False,
        "tokenizer",
    ),
    ("config-max-length", "limits edited", _config, False, "tokenizer"),
    ("emptied", "file cut short", lambda contents: contents.update({TOKENIZER_FILE: b""}), False, ""),
)

FAULTS = tuple(
    Fault(id=f"tokenizer-{name}", kind=kind, plant=plant, moves=moves, check=check)
    for name, kind, plant, moves, check in _ROWS
)
