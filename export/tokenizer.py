"""The text half of the contract: SentencePiece BPE with byte fallback, and the same tokenizer as a tokenizer.json.

Text is normalised by the contract and by nothing else, so one model file gives the same ids in Python, C++ and
JavaScript, and no text is unknown. Encoding is O(n log n) in the characters of the text.
Not supported: pairs of texts, subword sampling, offsets into the text.
"""

import io
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import sentencepiece

from export.contract import (
    CLS_ID,
    PAD_ID,
    RESERVED_IDS,
    SEP_ID,
    SPECIAL_TOKENS_PER_TEXT,
    UNK_ID,
    canonical_json,
    normalise_text,
)

# What each reserved id is called inside tokenizer.model, tokenizer.json and tokenizer_config.json.
RESERVED_PIECES = {name: f"<{name}>" for name in RESERVED_IDS}

_SPACE = "\u2581"
# SentencePiece silently skips a training text that holds its own placeholder.
_PLACEHOLDER = "\u2585"
# The highest that SentencePiece takes; it silently skips longer training texts, by default those above 4,192 bytes.
_LONGEST_TEXT_BYTES = 1 << 30
# Characters rarer than 1 in 10,000 are spelled in bytes: their own piece would be seen too seldom to be learned.
_CHARACTER_COVERAGE = 0.9999


class Encoding(NamedTuple):
    """The ids of one text, cls and sep included, and how many of its pieces truncation dropped."""

    ids: list[int]
    dropped: int


class WordEncoding(NamedTuple):
    """The ids of one text, cls and sep included, its words, and where in the ids the first piece of each word stands.

    `firsts` names the words whose first piece was kept: the first len(firsts) of them.
    """

    ids: list[int]
    words: list[str]
    firsts: list[int]
    dropped: int


class Tokenizer:
    """Turns texts into ids as every consumer of the artifact does: normalise, cut, truncate, add cls and sep.

    Args:
        model: the bytes of tokenizer.model.
        max_length: the most ids that a text may have, cls and sep included; at least 3.

    Raises:
        ValueError: if the bytes are no SentencePiece model, if it lacks the reserved ids or the byte pieces, or if
            max_length leaves no room for a piece.
    """

    def __init__(self, model: bytes, *, max_length: int) -> None:
        _check_max_length(max_length)
        self._processor = _load_processor(model)
        self.max_length = max_length
        self.vocab_size: int = self._processor.get_piece_size()

    def encode(self, text: str) -> Encoding:
        """Encode one text; truncation keeps the first max_length − 2 pieces, and happens nowhere else.

        Raises:
            ValueError: if the text holds a lone surrogate.
        """
        pieces: list[int] = self._processor.encode(normalise_text(text))
        room = self.max_length - SPECIAL_TOKENS_PER_TEXT
        return Encoding([CLS_ID, *pieces[:room], SEP_ID], max(0, len(pieces) - room))

    def encode_words(self, text: str) -> WordEncoding:
        """Encode one text and say where its words begin; the ids are those of `encode`, for no piece spans two words.

        Raises:
            ValueError: if the text holds a lone surrogate.
        """
        words = normalise_text(text).split(" ")
        words = words if words != [""] else []
        pieces: list[list[int]] = self._processor.encode(words) if words else []
        room = self.max_length - SPECIAL_TOKENS_PER_TEXT
        # The first piece of a word stands behind cls and the pieces of the words before it.
        starts = list(accumulate((len(own) for own in pieces), initial=0))
        firsts = [1 + start for start in starts[:-1] if start < room]
        kept = list(chain.from_iterable(pieces))[:room]
        return WordEncoding([CLS_ID, *kept, SEP_ID], words, firsts, max(0, starts[-1] - room))

    def encode_batch(self, texts: Iterable[str]) -> list[Encoding]:
        """Encode each text by itself."""
        return [self.encode(text) for text in texts]


def pad_batch(encodings: Sequence[Encoding | WordEncoding]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pad on the right to the longest encoding: input_ids and attention_mask, each (batch, sequence) int64.

    Raises:
        ValueError: if there is no encoding.
    """
    if not encodings:
        raise ValueError("the batch must hold at least 1 encoding; got 0. Skip empty batches.")
    return pad_rows([encoding.ids for encoding in encodings])


def pad_rows(rows: Sequence[npt.ArrayLike]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pad rows of ids, at least one, as `pad_batch` does."""
    ids = [np.asarray(row, np.int64) for row in rows]
    shape = len(ids), max(map(len, ids))
    input_ids, attention_mask = np.full(shape, PAD_ID, np.int64), np.zeros(shape, np.int64)
    for number, row in enumerate(ids):
        input_ids[number, : len(row)], attention_mask[number, : len(row)] = row, 1
    return input_ids, attention_mask


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> bytes:
    """Train a model on texts: the bytes of tokenizer.model, the same for the same texts.

    The model holds pieces and settings: no path and no text. No text is left out.

    Args:
        texts: any texts; the contract's text rules are applied to them.
        vocab_size: the most pieces, with the 5 reserved and 256 byte pieces; few texts allow fewer.

    Raises:
        ValueError: if there is no text, if one holds a lone surrogate, or if the texts need more pieces.
    """
    model = io.BytesIO()
    sentences = [normalise_text(text).replace(_PLACEHOLDER, " ") for text in texts]
    if not any(sentence.strip(" ") for sentence in sentences):
        raise ValueError("a tokenizer must be trained on at least 1 text that is not blank; got none. Add texts.")
    least = len(RESERVED_PIECES) + 256 + 1
    if not least <= vocab_size < 1 << 31:
        raise ValueError(
            f"vocab_size must be at least {least} (reserved ids, bytes and a character) and below 2^31; "
            f"got {vocab_size}. Choose a few thousand."
        )
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
            byte_fallback=True,
            normalization_rule_name="identity",
            # SentencePiece takes a typed U+2581 for a space and would strip it.
            remove_extra_whitespaces=False,
            add_dummy_prefix=True,
            pad_id=PAD_ID,
            pad_piece=RESERVED_PIECES["pad"],
            unk_id=UNK_ID,
            unk_piece=RESERVED_PIECES["unk"],
            bos_id=-1,
            eos_id=-1,
            # Control pieces: a text that spells one gets ordinary pieces, never the reserved id.
            control_symbols=[RESERVED_PIECES[name] for name in ("cls", "sep", "mask")],
            max_sentence_length=_LONGEST_TEXT_BYTES,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        raise ValueError(
            f"vocab_size must be at least {needed[1]} for these texts (reserved ids, bytes and characters); "
            f"got {vocab_size}. Raise it."
        ) from None
    return model.getvalue()


def huggingface_tokenizer(model: bytes, *, max_length: int) -> str:
    """Write tokenizer.json for Hugging Face `tokenizers`: the same ids for every raw text, truncation included.

    The reserved pieces stand in the vocabulary and are no added tokens: `tokenizers` would give their ids to a text
    that spells one.

    Raises:
        ValueError: as for `Tokenizer`.
    """
    _check_max_length(max_length)
    processor = _load_processor(model)
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    cls, sep = RESERVED_PIECES["cls"], RESERVED_PIECES["sep"]
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": max_length,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": PAD_ID,
            "pad_type_id": 0,
            "pad_token": RESERVED_PIECES["pad"],
        },
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                # SentencePiece starts every text that is not empty with U+2581. Prepending the space before the run
                # that it joins is the one way in which Rust and JavaScript agree on blank texts and on a typed U+2581.
                {"type": "Prepend", "prepend": " "},
                # Strip would know other white space; $ is the end of a line in Oniguruma, so runs go first.
                _replace({"Regex": r"[\x00\x09-\x0D\x20]+"}, " "),
                _replace({"Regex": " $"}, ""),
                _replace({"String": " "}, _SPACE),
            ],
        },
        "pre_tokenizer": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": RESERVED_PIECES["unk"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "merges": _merges(processor, pieces),
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(cls), _sequence("A", 0), _special(sep)],
            "pair": [_special(cls), _sequence("A", 0), _special(sep), _sequence("B", 1), _special(sep)],
            "special_tokens": {
                piece: {"id": piece, "ids": [index], "tokens": [piece]}
                for piece, index in ((cls, CLS_ID), (sep, SEP_ID))
            },
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                _replace({"String": _SPACE}, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    }
    return canonical_json(document) + "\n"


def huggingface_tokenizer_config(*, max_length: int) -> dict[str, Any]:
    """Build tokenizer_config.json for transformers' AutoTokenizer.

    Raises:
        ValueError: if max_length leaves no room for a piece.
    """
    _check_max_length(max_length)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        # A text that spells a reserved piece gets ordinary pieces.
        "split_special_tokens": True,
        **{f"{name}_token": piece for name, piece in RESERVED_PIECES.items()},
    }


def _check_max_length(max_length: int) -> None:
    if max_length <= SPECIAL_TOKENS_PER_TEXT:
        raise ValueError(
            f"max_length must be at least {SPECIAL_TOKENS_PER_TEXT + 1}: cls, piece, sep; got {max_length}. Raise it."
        )


def _load_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    # The constructor would take empty bytes for a model without pieces.
    try:
        processor.load_from_serialized_proto(model)
    except RuntimeError:
        raise ValueError(
            f"the tokenizer must be a SentencePiece model; got {len(model)} bytes that SentencePiece refuses. "
            "Take tokenizer.model from the run or the artifact again."
        ) from None
    size = processor.get_piece_size()
    for name, index in RESERVED_IDS.items():
        reserved = processor.is_unknown if index == UNK_ID else processor.is_control
        if index >= size or processor.id_to_piece(index) != RESERVED_PIECES[name] or not reserved(index):
            got = repr(processor.id_to_piece(index)) if index < size else "nothing"
            raise ValueError(
                f"the tokenizer must reserve id {index} for {RESERVED_PIECES[name]}; got {got}. "
                "Train it with export.tokenizer.train_tokenizer."
            )
    # SentencePiece itself refuses a model that has some of the byte pieces.
    if not processor.is_byte(processor.piece_to_id("<0x00>")):
        raise ValueError(
            "the tokenizer must have a piece for every byte, so that no text is unknown; got none. "
            "Train it with export.tokenizer.train_tokenizer."
        )
    return processor


def _merges(processor: sentencepiece.SentencePieceProcessor, pieces: list[str]) -> list[list[str]]:
    """Rebuild the list of merges from the scores: SentencePiece merges any two pieces whose union is a piece.

    SentencePiece ranks by the union's score, then by position; `tokenizers` by the merge, then by position. The order
    of one piece's own splits made no difference on 1.2 million strings of two and three letters.
    """
    ordinary = [
        index
        for index in range(len(pieces))
        if not (processor.is_control(index) or processor.is_unknown(index) or processor.is_byte(index))
    ]
    known = {pieces[index] for index in ordinary}
    merges = []
    for index in sorted(ordinary, key=lambda index: (-processor.get_score(index), index)):
        piece = pieces[index]
        splits = ([piece[:cut], piece[cut:]] for cut in range(1, len(piece)))
        merges += [split for split in splits if split[0] in known and split[1] in known]
    return merges


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _special(piece: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": piece, "type_id": 0}}


def _sequence(name: str, type_id: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}
