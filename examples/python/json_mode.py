"""One JSON request, one JSON answer.

Requests are read strictly, for what one language's parser overlooks another's would not. The sentences are those of the
C++ program, to the letter.
"""

import itertools
import json
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ferry_artifact import TOKEN_CLASSIFICATION, Artifact, ArtifactError, decode_text, read_float, read_int

MAX_DEPTH = 64

# A bracket, or a string without its closing quote.
_TOKEN = re.compile(rb'[\[{]|[\]}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# Inside a string: a surrogate pair, half of one, or any other escape.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


class Reply(NamedTuple):
    """A line of JSON, and whether it tells an error."""

    json: str
    failed: bool


class TextRequest(NamedTuple):
    """`{"text": "..."}`."""

    text: str


class IdsRequest(NamedTuple):
    """`{"input_ids": [[...]], "attention_mask": [[...]]}`, each (batch, sequence) int64."""

    input_ids: npt.NDArray[np.int64]
    attention_mask: npt.NDArray[np.int64]


def answer_request(artifact: Artifact, line: bytes) -> Reply:
    """Answer a request; a wrong one is answered `{"error": "..."}`."""
    try:
        return Reply(_dump(_answer(artifact, parse_request(line))), failed=False)
    except (ValueError, ArtifactError) as error:
        return Reply(_dump({"error": str(error)}), failed=True)


def parse_request(line: bytes) -> TextRequest | IdsRequest:
    """Read a request.

    Raises:
        ValueError: names what was wrong, what was got, what was wanted and what to do.
    """
    decode_text(line, "the line")
    _check_line(line)
    request = _parse(line)
    if not isinstance(request, dict):
        raise ValueError(f'the line must be a JSON object; got {_kind_of(request)}. Write {{"text": "..."}}.')
    if request.keys() == {"text"}:
        if not isinstance(request["text"], str):
            raise ValueError(f"text must be a string; got {_kind_of(request['text'])}. Send a request for each text.")
        return TextRequest(request["text"])
    if request.keys() == {"input_ids", "attention_mask"}:
        return IdsRequest(_read_matrix(request, "input_ids"), _read_matrix(request, "attention_mask"))
    keys = ", ".join(map(json.dumps, sorted(request))) or "none"
    raise ValueError(
        "the request must have the key text, or the keys input_ids and attention_mask, and no other; "
        f"got {keys}. Name them so."
    )


def _answer(artifact: Artifact, request: TextRequest | IdsRequest) -> dict[str, Any]:
    if isinstance(request, IdsRequest):
        return {"logits": artifact.logits(*request).tolist()}
    if artifact.task == TOKEN_CLASSIFICATION:
        (tags,) = artifact.tag([request.text])
        words = [word._asdict() for word in tags.words]
        return {"words": words, "dropped": tags.dropped, "input_ids": tags.input_ids}
    (answer,) = artifact.classify([request.text])
    return {
        "label": answer.label,
        "probability": answer.probability,
        "dropped": answer.dropped,
        "input_ids": answer.input_ids,
    }


def _dump(answer: dict[str, Any]) -> str:
    return json.dumps(answer, separators=(",", ":"))


def _check_line(line: bytes) -> None:
    """Refuse, before a parser is asked, what parsers treat differently."""
    depth = 0
    for token in _TOKEN.finditer(line):
        if token[0] in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"the line must nest at most {MAX_DEPTH} deep; got more. Write a flat request.")
        elif token[0] in b"]}":
            depth -= 1
        else:
            for escape in _ESCAPE.finditer(line, *token.span()):
                if escape["lone"]:
                    raise ValueError(
                        "the line must escape surrogates in pairs; got the lone surrogate "
                        f"U+{escape['lone'][2:].decode().upper()} at offset {escape.start()}. "
                        "Escape the whole character, or write it in UTF-8."
                    )


def _parse(line: bytes) -> Any:
    twice: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = sorted(key for key, _ in pairs)
        twice.extend(key for key, following in itertools.pairwise(keys) if key == following)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        document = json.loads(
            line.decode(), parse_int=read_int, parse_float=read_float, parse_constant=refuse, object_pairs_hook=build
        )
    except ValueError:
        raise ValueError(
            "the line must be valid JSON, its numbers within a double's range; got something else. "
            "Write one JSON object a line."
        ) from None
    if twice:
        raise ValueError(f"the line must give each key once; got {json.dumps(twice[0])} twice. Remove one.")
    return document


def _read_matrix(request: dict[str, Any], key: str) -> npt.NDArray[np.int64]:
    rows = request[key]
    if not isinstance(rows, list):
        raise ValueError(f"{key} must be a list of rows; got {_kind_of(rows)}. Write [[...]], a row for each text.")
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise ValueError(
                f"{key} must be a list of rows; got {_kind_of(row)} at row {number}. "
                "Write [[...]], a row for each text."
            )
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{key} must have equally long rows; got {len(rows[0])} values in row 0 and {len(row)} in row "
                f"{number}. Pad the shorter ones."
            )
        for column, value in enumerate(row):
            # To Python true and false are whole numbers.
            if type(value) is not int or not -(2**63) <= value < 2**63:
                kind = "another number" if type(value) in (int, float) else _kind_of(value)
                raise ValueError(
                    f"{key} must hold whole numbers of 64 bits, without fraction or exponent; got {kind} "
                    f"at row {number}, column {column}. Write ids as the tokenizer gives them."
                )
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(rows[0]) if rows else 0)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")
