"""The tokenizer: training, encoding, what it refuses, and the same ids from tokenizer.json."""

import hashlib
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from export.contract import normalise_text
from export.tokenizer import (
    Encoding,
    Tokenizer,
    huggingface_tokenizer,
    huggingface_tokenizer_config,
    pad_batch,
    train_tokenizer,
)
from pipeline.data.dataset import Dataset, load_dataset

VOCAB_SIZE = 4000
NO_LIMIT = 1 << 20
RESERVED = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"]
TINY_TEXTS = ["abc def ghi", "hello world"]

WHITE_SPACE = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x1680, *range(0x2000, 0x2010))]
WHITE_SPACE += list("\u2028\u2029\u202f\u205f\u2060\u3000\u180e\ufeff")
LOOK_ALIKES = [
    *RESERVED,
    *("<s>", "</s>", "[CLS]", "##ing", " ⁇ ", "<0x00>", "<0x0A>", "<0x41>", "<0xFF>", "\r\n"),
    *("\u2581", "\u2581\u2581", "\u2585", "\ufffd", "\ue000", "e\u0301", "👩\u200d👩\u200d👧", "\U0010ffff"),
]
# Basic Latin three times, then combining marks, emoji, Hebrew and Arabic, Devanagari, Hangul, Han, whole planes.
BLOCKS = [
    *[(0x20, 0x7F)] * 3,
    *[(0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xA00), (0x4E00, 0xA000)],
    *[(0xAC00, 0xD7A4), (0xE000, 0xF900), (0xFE00, 0xFE10), (0xFF00, 0x10000), (0x1F300, 0x1FB00), (0xE0000, 0xE01F0)],
    *[(0, 0xD800), (0x10000, 0x110000)],
]


def random_text(rng: random.Random, words: list[str]) -> str:
    """Join up to 13 hostile parts: white space, look-alikes, real words, long runs, characters of one block."""
    parts = []
    for _ in range(rng.randrange(14)):
        kind = rng.randrange(5)
        if kind == 0:
            parts.append(rng.choice(WHITE_SPACE) * rng.choice((1, 1, 2, 3)))
        elif kind == 1:
            parts.append(rng.choice(LOOK_ALIKES))
        elif kind == 2:
            parts.append(rng.choice(words))
        elif kind == 3 and rng.random() < 0.2:
            parts.append(rng.choice("abcxw-=*. ") * rng.randrange(1, 400))
        else:
            low, high = rng.choice(BLOCKS)
            parts.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 8))))
    return "".join(parts)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset()


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> bytes:
    return train_tokenizer(dataset.train.inputs, vocab_size=VOCAB_SIZE)


@pytest.fixture(scope="module")
def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return processor


@pytest.fixture(scope="module")
def random_texts(dataset: Dataset) -> list[str]:
    rng = random.Random(2)
    words = [word for text in dataset.train.inputs[::200] for word in text.split(" ")]
    return [random_text(rng, words) for _ in range(8000)]


def rewritten(model: bytes, edit: str) -> bytes:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    if edit == "cls is ordinary":
        proto.pieces[2].type = proto.pieces[2].NORMAL
    elif edit == "other names":
        proto.pieces[2].piece = "[CLS]"
    elif edit == "no bytes":
        for piece in proto.pieces[5:261]:
            piece.type = piece.NORMAL
        proto.trainer_spec.byte_fallback = False
    elif edit == "reversed":
        ordinary = list(proto.pieces[261:])
        del proto.pieces[261:]
        proto.pieces.extend(reversed(ordinary))
    elif edit == "few pieces":
        del proto.pieces[3:]
        proto.trainer_spec.byte_fallback = False
    return bytes(proto.SerializeToString())


def model_id(model: bytes, piece: str) -> int:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return int(processor.piece_to_id(piece))


def run_python(program: str, *, cwd: Path) -> str:
    """Run a program in a fresh process, demand that stderr stays empty, and return its output."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


class TestTraining:
    def test_pieces(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        assert processor.get_piece_size() == VOCAB_SIZE
        assert [processor.id_to_piece(index) for index in range(5)] == RESERVED
        assert [processor.id_to_piece(index) for index in range(5, 261)] == [f"<0x{byte:02X}>" for byte in range(256)]

    def test_same_texts_same_bytes_in_another_process(self, dataset: Dataset, tmp_path: Path) -> None:
        texts = dataset.train.inputs[:500]
        (tmp_path / "texts.json").write_text(json.dumps(texts), "utf-8")
        program = """
import hashlib, json, pathlib
from export.tokenizer import train_tokenizer
texts = json.loads(pathlib.Path("texts.json").read_text("utf-8"))
print(hashlib.sha256(train_tokenizer(texts, vocab_size=600)).hexdigest())
"""
        output = run_python(program, cwd=tmp_path)
        assert output.strip() == hashlib.sha256(train_tokenizer(iter(texts), vocab_size=600)).hexdigest()
        assert [path.name for path in tmp_path.iterdir()] == ["texts.json"]

    def test_model_holds_settings_and_pieces_only(self, model: bytes) -> None:
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        stored = {field.name for field, _ in proto.trainer_spec.ListFields()}
        assert stored == {
            *("model_type", "vocab_size", "hard_vocab_limit", "character_coverage", "max_sentence_length"),
            *("byte_fallback", "num_threads", "control_symbols", "pad_id", "pad_piece", "unk_id", "unk_piece"),
            *("bos_id", "eos_id"),
        }
        assert {field.name for field, _ in proto.ListFields()} == {"pieces", "trainer_spec", "normalizer_spec"}
        assert proto.normalizer_spec.name == "identity"
        assert not proto.normalizer_spec.precompiled_charsmap
        assert not proto.normalizer_spec.remove_extra_whitespaces

    def test_long_text_is_not_dropped(self) -> None:
        long = "zebra " * 20_000
        model = train_tokenizer([*TINY_TEXTS, long], vocab_size=285)
        assert Tokenizer(model, max_length=9).encode("zebra").ids[1:-1] == [model_id(model, "\u2581zebra")]

    def test_word_of_any_length(self) -> None:
        model = train_tokenizer([*TINY_TEXTS, "ab" * 70_000 + "\U0001f600"], vocab_size=280)
        assert model_id(model, "abab") != 1
        assert model_id(model, "\U0001f600") == 1

    @pytest.mark.parametrize("reserved", [*RESERVED, "<0x41>", "\u2581", "\u2585"])
    def test_text_with_a_reserved_string_is_not_dropped(self, reserved: str) -> None:
        model = train_tokenizer([*TINY_TEXTS, f"zebra {reserved} zebra {reserved}zebra"], vocab_size=290)
        assert model_id(model, "\u2581zebra") != 1

    def test_texts_are_normalised(self) -> None:
        untidy = ["\tabc\0def\n ghi ", "", "\0", "hello\r\nworld"]
        assert train_tokenizer(untidy, vocab_size=290) == train_tokenizer(TINY_TEXTS, vocab_size=290)

    def test_few_texts_allow_fewer_pieces(self, capfd: pytest.CaptureFixture[str]) -> None:
        largest = Tokenizer(train_tokenizer(TINY_TEXTS, vocab_size=4000), max_length=9).vocab_size
        assert 262 < largest < 400
        for vocab_size, pieces in ((largest + 1, largest), (largest, largest), (largest - 1, largest - 1)):
            assert Tokenizer(train_tokenizer(TINY_TEXTS, vocab_size=vocab_size), max_length=9).vocab_size == pieces
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("vocab_size", [262, 270])
    def test_too_small_a_vocabulary_names_the_smallest(
        self, vocab_size: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(
            ValueError, match=rf"^vocab_size must be at least \d+ .*got {vocab_size}\. Raise it"
        ) as caught:
            train_tokenizer(TINY_TEXTS, vocab_size=vocab_size)
        (smallest,) = map(int, re.findall(r"at least (\d+)", str(caught.value)))
        assert Tokenizer(train_tokenizer(TINY_TEXTS, vocab_size=smallest), max_length=9).vocab_size == smallest
        with pytest.raises(ValueError, match=f"at least {smallest} "):
            train_tokenizer(TINY_TEXTS, vocab_size=smallest - 1)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("vocab_size", [-1, 0, 4, 261, 1 << 31])
    def test_impossible_vocabulary(self, vocab_size: int) -> None:
        with pytest.raises(ValueError, match=rf"must be at least 262 .* and below 2\^31; got {vocab_size}\."):
            train_tokenizer(TINY_TEXTS, vocab_size=vocab_size)

    def test_lone_surrogate(self) -> None:
        with pytest.raises(ValueError, match=r"^text must be valid Unicode; got the lone surrogate U\+D800"):
            train_tokenizer([*TINY_TEXTS, "a\ud800"], vocab_size=290)

    @pytest.mark.parametrize("texts", [[], ["", " \0\n"], ["\u2585"]], ids=["none", "blank", "placeholder"])
    def test_no_text(self, texts: list[str]) -> None:
        with pytest.raises(ValueError, match="must be trained on at least 1 text that is not blank; got none"):
            train_tokenizer(texts, vocab_size=300)


class TestEncoding:
    def test_empty_text(self, model: bytes) -> None:
        assert Tokenizer(model, max_length=8).encode(" \t\0\n") == Encoding([2, 3], 0)

    @pytest.mark.parametrize("max_length", [3, 4, 7, 64])
    def test_truncation_keeps_the_first_pieces(self, model: bytes, max_length: int) -> None:
        text = "Permission is hereby granted, free of charge, to any person obtaining a copy"
        whole = Tokenizer(model, max_length=NO_LIMIT).encode(text)
        assert whole.dropped == 0
        pieces = whole.ids[1:-1]
        room = max_length - 2
        wanted = Encoding([2, *pieces[:room], 3], max(0, len(pieces) - room))
        assert Tokenizer(model, max_length=max_length).encode(text) == wanted

    @given(
        text=st.lists(
            st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(LOOK_ALIKES + WHITE_SPACE)
        ).map("".join)
    )
    @settings(max_examples=300, deadline=None)
    def test_pieces_spell_the_normalised_text(self, model: bytes, text: str) -> None:
        processor = sentencepiece.SentencePieceProcessor()
        processor.load_from_serialized_proto(model)
        ids = Tokenizer(model, max_length=NO_LIMIT).encode(text).ids
        assert all(index > 4 for index in ids[1:-1])
        spelled = b"".join(
            bytes([index - 5]) if index < 261 else processor.id_to_piece(index).encode("utf-8") for index in ids[1:-1]
        ).decode("utf-8")
        normalised = normalise_text(text)
        assert spelled == (" " + normalised if normalised else "").replace(" ", "\u2581")

    @pytest.mark.parametrize("typed", [*RESERVED, "<0x41>", "<0x0A>"])
    def test_typed_reserved_pieces_are_ordinary_text(self, model: bytes, typed: str) -> None:
        for text in (typed, f"a {typed} b", f"a{typed}b"):
            ids = Tokenizer(model, max_length=64).encode(text).ids
            assert min(ids[1:-1]) > 260

    def test_typed_space_symbol_is_kept(self, model: bytes) -> None:
        tokenizer = Tokenizer(model, max_length=64)
        lengths = [
            len(tokenizer.encode(text).ids) for text in ("\u2581", "\u2581\u2581", "a", "a\u2581", "a\u2581\u2581")
        ]
        assert lengths == [4, 5, 3, 4, 5]

    def test_batch(self, model: bytes) -> None:
        tokenizer = Tokenizer(model, max_length=16)
        texts = ["MIT", "", "Apache License, Version 2.0 " * 9]
        assert tokenizer.encode_batch(iter(texts)) == [tokenizer.encode(text) for text in texts]
        assert tokenizer.encode_batch([]) == []

    def test_lone_surrogate(self, model: bytes) -> None:
        with pytest.raises(ValueError, match=r"lone surrogate U\+D800 at character 1"):
            Tokenizer(model, max_length=16).encode("a\ud800")

    def test_pad_batch(self) -> None:
        input_ids, attention_mask = pad_batch([Encoding([2, 3], 0), Encoding([2, 9, 8, 3], 5)])
        np.testing.assert_array_equal(input_ids, [[2, 3, 0, 0], [2, 9, 8, 3]])
        np.testing.assert_array_equal(attention_mask, [[1, 1, 0, 0], [1, 1, 1, 1]])
        assert input_ids.dtype == attention_mask.dtype == np.int64

    def test_pad_batch_of_nothing(self) -> None:
        with pytest.raises(ValueError, match="the batch must hold at least 1 encoding; got 0"):
            pad_batch([])


class TestWords:
    def test_words_and_where_they_begin(self, model: bytes) -> None:
        tokenizer = Tokenizer(model, max_length=64)
        encoding = tokenizer.encode_words("  the  licence\0of\tthe <cls> ")
        assert encoding.words == ["the", "licence", "of", "the", "<cls>"]
        pieces = [tokenizer.encode(word).ids[1:-1] for word in encoding.words]
        assert encoding.ids == [2, *(piece for own in pieces for piece in own), 3]
        assert [encoding.ids[first] for first in encoding.firsts] == [own[0] for own in pieces]
        assert encoding.dropped == 0

    @pytest.mark.parametrize("text", ["", " ", "\0\t"])
    def test_blank_text_has_no_words(self, model: bytes, text: str) -> None:
        assert Tokenizer(model, max_length=9).encode_words(text) == ([2, 3], [], [], 0)

    @pytest.mark.parametrize("max_length", [3, 4, 7, 12])
    def test_words_beyond_the_limit_have_no_place(self, model: bytes, max_length: int) -> None:
        tokenizer = Tokenizer(model, max_length=max_length)
        text = "permission is hereby granted xyzzyxyzzy"
        encoding = tokenizer.encode_words(text)
        assert (encoding.ids, encoding.dropped) == tokenizer.encode(text)
        # A word is read if its first piece is, though its last may be cut.
        starts = [1]
        for word in encoding.words[:-1]:
            starts.append(starts[-1] + len(Tokenizer(model, max_length=99).encode(word).ids) - 2)
        assert encoding.firsts == [start for start in starts if start < max_length - 1]

    def test_no_piece_spans_two_words(self, model: bytes, dataset: Dataset, random_texts: list[str]) -> None:
        tokenizer = Tokenizer(model, max_length=48)
        typed = ["a\u2581b \u2581\u2581 c", "\u2581", " \u2581 \u2581\u2581\u2581 x\u2581"]
        for text in [*dataset.test.inputs, *random_texts, *typed]:
            encoding = tokenizer.encode_words(text)
            assert (encoding.ids, encoding.dropped) == tokenizer.encode(text)
            assert " ".join(encoding.words) == normalise_text(text)

    def test_lone_surrogate(self, model: bytes) -> None:
        with pytest.raises(ValueError, match="lone surrogate"):
            Tokenizer(model, max_length=9).encode_words("\ud800")


class TestRefusals:
    @pytest.mark.parametrize("damage", ["empty", "text", "cut", "longer"])
    def test_damaged_model(self, model: bytes, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
        damaged = {"empty": b"", "text": b"MIT", "cut": model[:-100], "longer": model + b"\xff"}[damage]
        message = f"^the tokenizer must be a SentencePiece model; got {len(damaged)} bytes that SentencePiece refuses"
        with pytest.raises(ValueError, match=message):
            Tokenizer(damaged, max_length=16)
        with pytest.raises(ValueError, match=message):
            huggingface_tokenizer(damaged, max_length=16)
        assert capfd.readouterr() == ("", "")

    def test_empty_model_in_a_fresh_process(self, tmp_path: Path) -> None:
        program = """
from export.tokenizer import Tokenizer
try:
    Tokenizer(b"", max_length=16)
except ValueError as error:
    print(error)
"""
        assert run_python(program, cwd=tmp_path).startswith("the tokenizer must be a SentencePiece model; got 0 bytes")

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            ("cls is ordinary", "must reserve id 2 for <cls>; got '<cls>'"),
            ("other names", r"must reserve id 2 for <cls>; got '\[CLS\]'"),
            ("few pieces", "must reserve id 3 for <sep>; got nothing"),
            ("no bytes", "must have a piece for every byte, so that no text is unknown; got none"),
        ],
    )
    def test_foreign_model(self, model: bytes, edit: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^the tokenizer {message}\\. Train it with"):
            Tokenizer(rewritten(model, edit), max_length=16)
        Tokenizer(rewritten(model, "nothing"), max_length=16)

    @pytest.mark.parametrize("max_length", [2, 0, -1])
    def test_max_length(self, model: bytes, max_length: int) -> None:
        message = f"^max_length must be at least 3: cls, piece, sep; got {max_length}"
        with pytest.raises(ValueError, match=message):
            Tokenizer(model, max_length=max_length)
        with pytest.raises(ValueError, match=message):
            huggingface_tokenizer(model, max_length=max_length)
        with pytest.raises(ValueError, match=message):
            huggingface_tokenizer_config(max_length=max_length)


def assert_parity(model: bytes, texts: list[str], *, max_length: int) -> None:
    ours = Tokenizer(model, max_length=max_length).encode_batch(texts)
    theirs = tokenizers.Tokenizer.from_str(huggingface_tokenizer(model, max_length=max_length))
    theirs.no_padding()
    for text, encoding, other in zip(texts, ours, theirs.encode_batch(texts), strict=True):
        assert encoding.ids == other.ids, ascii(text)
        # Each overflowing part repeats cls and sep.
        assert encoding.dropped == sum(len(part.ids) - 2 for part in other.overflowing), ascii(text)


class TestHuggingFace:
    def test_merges_follow_scores_and_not_ids(self, model: bytes, dataset: Dataset) -> None:
        assert_parity(rewritten(model, "reversed"), dataset.test.inputs[:200], max_length=NO_LIMIT)

    @pytest.mark.parametrize("max_length", [NO_LIMIT, 192, 3], ids=["whole", "192", "3"])
    @pytest.mark.parametrize("split", ["train", "validation", "test"])
    def test_parity_on_the_data_set(self, dataset: Dataset, model: bytes, split: str, max_length: int) -> None:
        texts = getattr(dataset, split).inputs
        assert_parity(model, texts if max_length == NO_LIMIT else texts[:1000], max_length=max_length)

    @pytest.mark.parametrize("max_length", [NO_LIMIT, 16, 3], ids=["whole", "16", "3"])
    def test_parity_on_random_unicode(self, model: bytes, random_texts: list[str], max_length: int) -> None:
        texts = random_texts if max_length == NO_LIMIT else random_texts[:1000]
        assert_parity(model, texts, max_length=max_length)

    def test_parity_on_fragments_of_pieces(self, model: bytes, processor: sentencepiece.SentencePieceProcessor) -> None:
        """Equal scores and overlapping merges meet where pieces are cut up and joined again."""
        rng = random.Random(3)
        pieces = [processor.id_to_piece(index) for index in range(261, VOCAB_SIZE)]

        def fragment() -> str:
            piece = rng.choice(pieces)
            start = rng.randrange(len(piece))
            return piece[start : rng.randrange(start, len(piece)) + 1]

        texts = ["".join(fragment() for _ in range(rng.randrange(1, 12))) for _ in range(8000)]
        assert_parity(model, texts, max_length=NO_LIMIT)

    @pytest.mark.parametrize("alphabet", ["a", "ab", "aaab", "abc"])
    def test_parity_on_few_letters(self, alphabet: str) -> None:
        """A vocabulary of few letters has many ways to one piece."""
        rng = random.Random(4)

        def text(longest: int) -> str:
            return "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, longest)))

        model = train_tokenizer([text(25) for _ in range(1000)], vocab_size=280)
        assert_parity(model, [text(80) for _ in range(3000)], max_length=NO_LIMIT)

    def test_blank_texts_and_typed_space_symbols(self, model: bytes) -> None:
        blank = ["", " ", "\0", "\n", " \r\n\0\v\f\t"]
        symbols = ["\u2581", "\u2581\u2581", " \u2581", "\u2581 ", "a\u2581 \u2581b", "\u2581\ta", "\xa0\u2581\x85"]
        assert_parity(model, blank + symbols, max_length=NO_LIMIT)

    def test_pads_a_batch(self, model: bytes) -> None:
        theirs = tokenizers.Tokenizer.from_str(huggingface_tokenizer(model, max_length=16))
        texts = ["MIT", "", "Apache License, Version 2.0 " * 9]
        ids, mask = pad_batch(Tokenizer(model, max_length=16).encode_batch(texts))
        batch = theirs.encode_batch(texts)
        np.testing.assert_array_equal([row.ids for row in batch], ids)
        np.testing.assert_array_equal([row.attention_mask for row in batch], mask)

    def test_decodes(self, model: bytes) -> None:
        theirs = tokenizers.Tokenizer.from_str(huggingface_tokenizer(model, max_length=64))
        text = "The MIT Licence © \U0001f600 <cls> \u05d0e\u0301"
        assert theirs.decode(theirs.encode(text, add_special_tokens=False).ids) == text

    def test_is_ascii_and_the_same_each_time(self, model: bytes) -> None:
        document = huggingface_tokenizer(model, max_length=16)
        assert document.isascii()
        assert document == huggingface_tokenizer(model, max_length=16)

    def test_config(self, model: bytes) -> None:
        config = huggingface_tokenizer_config(max_length=16)
        vocab = tokenizers.Tokenizer.from_str(huggingface_tokenizer(model, max_length=16)).get_vocab()
        assert [vocab[config[f"{name}_token"]] for name in ("pad", "unk", "cls", "sep", "mask")] == [0, 1, 2, 3, 4]
        assert config["model_max_length"] == 16
        assert config["split_special_tokens"] is True
