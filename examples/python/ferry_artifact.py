"""Load a Ferry artifact and classify texts or tag words with it, on onnxruntime, sentencepiece and numpy alone.

Copy this file into your service:

    artifact = Artifact("artifacts/licence/1.0.0")
    for answer in artifact.classify(["Licensed under the MIT licence"]):
        print(answer.label, answer.probability)

An artifact that tags words is asked with `tag`. Every file is hashed before it is used, and the bytes that were hashed
are the bytes that are loaded. Threads may share an `Artifact`.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime
import sentencepiece
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_errors

FORMAT = 3
BATCH_SIZE = 32
TEXT_CLASSIFICATION = "text-classification"
TOKEN_CLASSIFICATION = "token-classification"

# ONNX Runtime's exceptions share no base class but Exception.
_RUNTIME_ERRORS = (
    onnxruntime_errors.Fail,
    onnxruntime_errors.InvalidArgument,
    onnxruntime_errors.InvalidGraph,
    onnxruntime_errors.InvalidProtobuf,
    onnxruntime_errors.NotImplemented,
    onnxruntime_errors.RuntimeException,
)
_KINDS: dict[str, tuple[type, ...]] = {
    "an object": (dict,),
    "a list": (list,),
    "a string": (str,),
    "a string or null": (str, type(None)),
    "a number": (int, float),
}


class ArtifactError(Exception):
    """The artifact is damaged, was changed, or can't be used by this program."""


class EncodedWord(NamedTuple):
    """A word, and where among the ids its first piece stands; None if truncation dropped it."""

    word: str
    position: int | None


class Encoding(NamedTuple):
    """The ids of a text, how many pieces were dropped because the model takes no more, and the words to tag."""

    ids: list[int]
    dropped: int
    words: list[EncodedWord]


class Answer(NamedTuple):
    """The most probable label of a text and its probability in 0 … 1, its ids, and how many pieces were dropped unread.

    The label is None, "none of these", if its probability is below the artifact's threshold.
    """

    label: str | None
    probability: float
    input_ids: list[int]
    dropped: int


class Word(NamedTuple):
    """A word with its label and probability; None and 0 where truncation dropped it."""

    word: str
    label: str | None
    probability: float


class Tags(NamedTuple):
    """The words of a text, its ids, and how many pieces were dropped unread."""

    words: list[Word]
    input_ids: list[int]
    dropped: int


class SelfTest(NamedTuple):
    """How many goldens were replayed, the largest difference between logits, and a sentence for each that differed."""

    texts: int
    batches: int
    largest_difference: float
    failures: list[str]


class Limits(NamedTuple):
    """The batch sizes, sequence lengths (padding included) and ids that the model accepts."""

    min_batch: int
    min_length: int
    max_length: int
    min_id: int
    max_id: int


class Artifact:
    """A packaged text classifier or word tagger.

    Args:
        folder: the artifact's folder, the one that holds manifest.json.
        threads: how many threads compute an answer. More than one helps a large model on idle cores; on busy cores
            they wait for each other.
        public_key: require a signature by this key, a file in PEM. Model files are programs: without a signature, trust
            whoever made the artifact.
        signature: its file; without it, <name>-<version>.sig beside the folder.

    Raises:
        ArtifactError: if a file was changed or is missing, if the artifact needs what this program lacks, or if the
            signature that is required is missing or wrong.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        threads: int = 1,
        public_key: str | Path | None = None,
        signature: str | Path | None = None,
    ) -> None:
        self._folder = Path(folder)
        manifest_bytes = self._read("manifest.json")
        manifest = parse_json(manifest_bytes, "manifest.json")
        self._files = _read_files(manifest)
        if self._read("SHA256SUMS") != _sha256sums(self._files, manifest_bytes):
            raise ArtifactError("SHA256SUMS does not agree with manifest.json: one was changed. Fetch both again.")

        self.name: str = get(manifest, "manifest.json", "a string", "name")
        self.version: str = get(manifest, "manifest.json", "a string", "version")
        if public_key is not None:
            beside = Path(os.path.realpath(folder)).parent / f"{self.name}-{self.version}.sig"
            self._check_signature(Path(public_key), beside if signature is None else Path(signature), manifest_bytes)
        self._metadata = get(manifest, "manifest.json", "an object", "metadata")
        self._require(FORMAT, "a whole number", "format")
        self.task: str = self._fact("a string", "task")
        if self.task not in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION):
            raise ArtifactError(
                f"manifest.json: metadata.task must be {TEXT_CLASSIFICATION} or {TOKEN_CLASSIFICATION}; "
                f"got {self.task}. Use a program that knows it."
            )
        self._require("softmax", "a string", "activation")
        self._require("sentencepiece-bpe", "a string", "tokenizer", "kind")
        _check_runtime(self._fact("a string", "minimum_runtime", "onnxruntime"))
        self.labels: list[str] = self._fact("a list", "labels")
        if not self.labels or not all(isinstance(label, str) for label in self.labels):
            raise ArtifactError("manifest.json: metadata.labels must be a list of strings, at least one.")
        self.temperature = float(self._fact("a number", "temperature"))
        if not self.temperature > 0:
            raise ArtifactError("manifest.json: metadata.temperature must be above 0.")
        self.threshold = float(self._fact("a number", "threshold"))
        if not 0 <= self.threshold <= 1:
            raise ArtifactError("manifest.json: metadata.threshold must lie in 0 to 1.")
        self.limits = Limits(
            min_batch=self._fact("a whole number", "limits", "batch_size", "min"),
            min_length=self._fact("a whole number", "limits", "sequence_length", "min"),
            max_length=self._fact("a whole number", "limits", "sequence_length", "max"),
            min_id=self._fact("a whole number", "limits", "input_ids", "min"),
            max_id=self._fact("a whole number", "limits", "input_ids", "max"),
        )
        self._pad, self._cls, self._sep = (
            self._fact("a whole number", "tokenizer", "reserved_ids", name) for name in ("pad", "cls", "sep")
        )
        if self.limits.max_length < 2 or max(self._pad, self._cls, self._sep) > self.limits.max_id:
            raise ArtifactError("manifest.json: metadata.limits leave no room for cls, sep and pad.")

        self._tokenizer = self._load_tokenizer()
        self._session = self._load_model("model.onnx", threads)

    @property
    def max_pieces(self) -> int:
        """How many pieces of a text the model reads: all that fit between cls and sep."""
        return self.limits.max_length - 2

    def encode(self, text: str) -> Encoding:
        """Turn a text into token ids: cls, the first `max_pieces` pieces, sep; and into words where words are tagged.

        Raises:
            ValueError: if the text holds a lone surrogate, which has no UTF-8 form.
        """
        normal = normalise_text(text)
        if self.task == TOKEN_CLASSIFICATION:
            return self._encode_words(normal.split(" ") if normal else [])
        pieces = self._tokenizer.encode(normal, out_type=int)
        kept = pieces[: self.max_pieces]
        return Encoding([self._cls, *kept, self._sep], len(pieces) - len(kept), [])

    def logits(self, input_ids: npt.NDArray[Any], attention_mask: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Run the model on token ids, after checking that they are what it accepts.

        Args:
            input_ids: (batch, sequence) int64; see `limits`.
            attention_mask: (batch, sequence) int64, 1 at a token and 0 at padding.

        Returns:
            (batch, labels); of an artifact that tags words (batch, sequence, labels), zeros at padding.

        Raises:
            ValueError: if the model does not accept these inputs.
            ArtifactError: if the model fails, or answers with something other than finite numbers.
        """
        check_inputs(input_ids, attention_mask, self.limits)
        try:
            (logits,) = self._session.run(["logits"], {"input_ids": input_ids, "attention_mask": attention_mask})
        except _RUNTIME_ERRORS as error:
            raise ArtifactError(f"model.onnx failed: {_first_line(error)}") from None
        rows = input_ids.shape if self.task == TOKEN_CLASSIFICATION else input_ids.shape[:1]
        if logits.dtype != np.float32 or logits.shape != (*rows, len(self.labels)):
            raise ArtifactError(f"model.onnx must answer with one float32 for each of {len(self.labels)} labels.")
        if not np.isfinite(logits).all():
            raise ArtifactError("model.onnx answered with numbers that are not finite.")
        return np.asarray(logits)

    def classify(self, texts: Sequence[str]) -> list[Answer]:
        """Give each text a label, `BATCH_SIZE` at a time.

        Raises:
            ValueError: if a text holds a lone surrogate, or if the artifact tags words.
            ArtifactError: if the model fails, or answers with something other than finite numbers.
        """
        if self.task != TEXT_CLASSIFICATION:
            raise ValueError("this artifact tags words; call tag.")
        return [Answer(*self._decide(rows)[0], encoding.ids, encoding.dropped) for encoding, rows in self._run(texts)]

    def tag(self, texts: Sequence[str]) -> list[Tags]:
        """Give each word of each text a label, `BATCH_SIZE` texts at a time.

        Raises:
            ValueError: if a text holds a lone surrogate, or if the artifact tags no words.
            ArtifactError: if the model fails, or answers with something other than finite numbers.
        """
        if self.task != TOKEN_CLASSIFICATION:
            raise ValueError("this artifact classifies whole texts; call classify.")
        return [
            Tags(self._decide_words(encoding.words, rows), encoding.ids, encoding.dropped)
            for encoding, rows in self._run(texts)
        ]

    def self_test(self) -> SelfTest:
        """Replay the goldens: texts to ids, logits, label and probability; ready-made batches to logits.

        Raises:
            ArtifactError: if goldens.json is damaged or empty.
        """
        file = "goldens.json"
        goldens = parse_json(self._read_checked(file), file)
        if (format_ := get(goldens, file, "a whole number", "format")) != FORMAT:
            raise ArtifactError(f"{file} must have format {FORMAT}; got {format_}. Use a newer program.")
        logits_tolerance = get(goldens, file, "a number", "tolerance", "logits")
        probability_tolerance = get(goldens, file, "a number", "tolerance", "probabilities")
        texts = get(goldens, file, "a list", "texts")
        batches = get(goldens, file, "a list", "batches")
        if not texts or not batches:
            raise ArtifactError(f"{file} must hold texts and batches; got {len(texts)} and {len(batches)}.")

        largest = 0.0
        failures = []

        def compare(got: npt.NDArray[np.float32], wanted: npt.NDArray[Any], what: str) -> None:
            nonlocal largest
            if got.shape != wanted.shape:
                failures.append(f"{what}: wanted logits of shape {wanted.shape}; got {got.shape}.")
                return
            difference = float(np.abs(got - wanted).max())
            largest = max(largest, difference)
            if not difference <= logits_tolerance:
                failures.append(f"{what}: logits differ by {difference:.2e}; {logits_tolerance:.2e} is allowed.")

        def compare_answer(label: str | None, probability: float, golden: Any, what: str) -> None:
            wanted = get(golden, file, "a string or null", "label")
            wanted_probability = get(golden, file, "a number", "probability")
            if label != wanted:
                failures.append(f"{what}: wanted {_told(wanted)}; got {_told(label)}.")
            elif not abs(probability - wanted_probability) <= probability_tolerance:
                failures.append(f"{what}: wanted the probability {wanted_probability:.6f}; got {probability:.6f}.")

        for number, golden in enumerate(texts, start=1):
            what = f"text {number}"
            encoding = self.encode(get(golden, file, "a string", "text"))
            wanted_ids = _tensor(golden, file, "a whole number", "input_ids", 1)
            wanted_dropped = get(golden, file, "a whole number", "dropped")
            if encoding.ids != wanted_ids.tolist() or encoding.dropped != wanted_dropped:
                failures.append(f"{what}: the tokenizer gives other ids.")
                continue
            logits = self.logits(*self._pad_batch([encoding]))
            # The golden is one text, the answer a batch of one.
            compare(logits, _tensor(golden, file, "a number", "logits", logits.ndim - 1)[np.newaxis], what)
            if self.task == TEXT_CLASSIFICATION:
                compare_answer(*self._decide(logits)[0], golden, what)
                continue
            words = self._decide_words(encoding.words, logits[0])
            wanted_words = get(golden, file, "a list", "words")
            if [word.word for word in words] != [get(wanted, file, "a string", "word") for wanted in wanted_words]:
                failures.append(f"{what}: the text has other words.")
                continue
            for position, (word, wanted) in enumerate(zip(words, wanted_words, strict=True), start=1):
                compare_answer(word.label, word.probability, wanted, f"{what}, word {position}")

        for number, golden in enumerate(batches, start=1):
            input_ids, attention_mask = (
                _tensor(golden, file, "a whole number", name, 2) for name in ("input_ids", "attention_mask")
            )
            try:
                logits = self.logits(input_ids, attention_mask)
            except ValueError as error:
                failures.append(f"batch {number}: {error}")
                continue
            compare(logits, _tensor(golden, file, "a number", "logits", logits.ndim), f"batch {number}")
        return SelfTest(len(texts), len(batches), largest, failures)

    def _fact(self, kind: str, *keys: str) -> Any:
        return get({"metadata": self._metadata}, "manifest.json", kind, "metadata", *keys)

    def _require(self, wanted: str | int, kind: str, *keys: str) -> None:
        if (got := self._fact(kind, *keys)) != wanted:
            raise ArtifactError(
                f"manifest.json: metadata.{'.'.join(keys)} must be {wanted}; got {got}. Use a program that knows it."
            )

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        if not path.is_file():
            raise ArtifactError(f"{name} is missing from {self._folder}. Give the folder of a whole artifact.")
        try:
            return path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"{name} can't be read: {error.strerror}.") from None

    def _read_checked(self, name: str) -> bytes:
        if name not in self._files:
            raise ArtifactError(f"manifest.json: files.{name} is missing.")
        data = self._read(name)
        if hashlib.sha256(data).hexdigest() != self._files[name]:
            raise ArtifactError(f"{name} was changed: its SHA-256 is not the manifest's. Fetch the artifact again.")
        return data

    def _check_signature(self, public_key: Path, signature: Path, manifest: bytes) -> None:
        try:
            # Needs cryptography, which only a service that requires signatures has to install.
            from ferry_signature import check_signature
        except ImportError as missing:
            raise ArtifactError(f"signatures can't be verified: {missing}. Install cryptography.") from None
        own = {"manifest.json": manifest, "SHA256SUMS": _sha256sums(self._files, manifest)}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in own.items()}
        check_signature(signature, public_key, self._files | hashes)

    def _load_tokenizer(self) -> sentencepiece.SentencePieceProcessor:
        file = self._fact("a string", "tokenizer", "file")
        model = self._read_checked(file)
        if self._files[file] != self._fact("a string", "tokenizer", "sha256"):
            raise ArtifactError(f"{file} is not the tokenizer that the model was trained with: their SHA-256 differ.")
        tokenizer = sentencepiece.SentencePieceProcessor()
        try:
            tokenizer.LoadFromSerializedProto(model)
        except RuntimeError:
            raise ArtifactError(f"{file} is not a SentencePiece model.") from None
        if (pieces := tokenizer.get_piece_size()) != self.limits.max_id + 1:
            raise ArtifactError(f"{file} has {pieces} pieces; the model takes {self.limits.max_id + 1}.")
        return tokenizer

    def _load_model(self, file: str, threads: int) -> onnxruntime.InferenceSession:
        model = self._read_checked(file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except _RUNTIME_ERRORS as error:
            raise ArtifactError(f"{file} can't be loaded: {_first_line(error)}") from None
        metadata = session.get_modelmeta().custom_metadata_map.get("ferry", "")
        if not metadata:
            raise ArtifactError(f"{file} carries no Ferry metadata.")
        if _canonical(parse_json(metadata.encode(), file)) != _canonical(self._metadata):
            raise ArtifactError(f"{file} carries other metadata than manifest.json: it is another artifact's model.")
        names = sorted(tensor.name for tensor in session.get_inputs()), [t.name for t in session.get_outputs()]
        if names != (["attention_mask", "input_ids"], ["logits"]):
            raise ArtifactError(f"{file} must take input_ids and attention_mask and give logits.")
        return session

    def _pad_batch(self, encodings: Sequence[Encoding]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        length = max(len(encoding.ids) for encoding in encodings)
        input_ids = np.full((len(encodings), length), self._pad, dtype=np.int64)
        attention_mask = np.zeros((len(encodings), length), dtype=np.int64)
        for row, encoding in enumerate(encodings):
            input_ids[row, : len(encoding.ids)] = encoding.ids
            attention_mask[row, : len(encoding.ids)] = 1
        return input_ids, attention_mask

    def _encode_words(self, words: list[str]) -> Encoding:
        """Encode word by word: no piece reaches from one word into the next, so the ids are those of the whole text."""
        ids, dropped, encoded = [self._cls], 0, []
        room = self.max_pieces
        for word in words:
            pieces = self._tokenizer.encode(word, out_type=int)
            kept = pieces[:room]
            encoded.append(EncodedWord(word, len(ids) if kept else None))
            ids += kept
            dropped += len(pieces) - len(kept)
            room -= len(kept)
        return Encoding([*ids, self._sep], dropped, encoded)

    def _run(self, texts: Sequence[str]) -> Iterator[tuple[Encoding, npt.NDArray[np.float32]]]:
        """Yield the encoding and the logits of each text: (1, labels), or (sequence, labels) where words are tagged."""
        for start in range(0, len(texts), BATCH_SIZE):
            encodings = [self.encode(text) for text in texts[start : start + BATCH_SIZE]]
            logits = self.logits(*self._pad_batch(encodings))
            yield from zip(encodings, logits.reshape(len(encodings), -1, len(self.labels)), strict=True)

    def _decide(self, logits: npt.NDArray[np.float32]) -> list[tuple[str | None, float]]:
        """Return the best label of each row, None if its probability is below the threshold, and that probability."""
        # A tiny temperature makes every other label's exponent −∞, and its probability 0.
        with np.errstate(over="ignore"):
            exponents = (logits.astype(np.float64) - logits.max(axis=1, keepdims=True)) / self.temperature
        # The best label's own exponential is 1.
        probabilities = (1 / np.exp(exponents).sum(axis=1)).tolist()
        best = logits.argmax(axis=1).tolist()
        return [
            (None if probability < self.threshold else self.labels[label], probability)
            for label, probability in zip(best, probabilities, strict=True)
        ]

    def _decide_words(self, words: Sequence[EncodedWord], logits: npt.NDArray[np.float32]) -> list[Word]:
        answers = self._decide(logits)
        return [
            Word(word, None, 0.0) if position is None else Word(word, *answers[position]) for word, position in words
        ]


def decode_text(raw: bytes, what: str = "the text") -> str:
    """Decode the bytes of a text, which `what` names in the error.

    Raises:
        ValueError: if they are not valid UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} must be valid UTF-8; got the byte 0x{raw[error.start]:02x} at offset {error.start}. "
            "Convert it to UTF-8 first."
        ) from None


def normalise_text(text: str) -> str:
    """Apply the artifact's text rules: U+0000 becomes a space, runs of white space become one, the ends are stripped.

    White space is U+0009 to U+000D and U+0020 and nothing else, so that every language agrees.

    Raises:
        ValueError: if the text holds a lone surrogate, which has no UTF-8 form.
    """
    if surrogate := re.search("[\ud800-\udfff]", text):
        raise ValueError(
            f"the text must be valid Unicode; got the lone surrogate U+{ord(surrogate[0]):04X} "
            f"at character {surrogate.start()}. Decode it from UTF-8 first."
        )
    return re.sub("[\t-\r ]+", " ", text.replace("\0", " ")).strip(" ")


def check_inputs(input_ids: npt.NDArray[Any], attention_mask: npt.NDArray[Any], limits: Limits) -> None:
    """Refuse a batch that the model does not accept, at padding too: ONNX Runtime itself answers some of them wrongly.

    Raises:
        ValueError: names what was wrong, what was got, what was wanted and what to do.
    """
    for name, tensor in (("input_ids", input_ids), ("attention_mask", attention_mask)):
        if tensor.ndim != 2 or tensor.dtype != np.int64:
            raise ValueError(
                f"{name} must be (batch, sequence) int64; got {tensor.shape} {tensor.dtype}. "
                'Reshape it, or cast it with .astype("int64").'
            )
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask must have the shape of input_ids, {input_ids.shape}; got {attention_mask.shape}. "
            "Give one mask value for each id."
        )
    batch, length = input_ids.shape
    if batch < limits.min_batch:
        raise ValueError(f"the batch must hold at least {limits.min_batch} row; got {batch}. Skip empty batches.")
    if not limits.min_length <= length <= limits.max_length:
        raise ValueError(
            f"the sequence must be {limits.min_length} to {limits.max_length} tokens long, padding included; "
            f"got {length}. Truncate the text as the tokenizer does."
        )
    wrong_ids = input_ids[(input_ids < limits.min_id) | (input_ids > limits.max_id)]
    if wrong_ids.size:
        raise ValueError(
            f"input_ids must lie in {limits.min_id} to {limits.max_id} at every position, padding too; "
            f"got {wrong_ids[0]}. Use the tokenizer of this artifact."
        )
    wrong_mask = attention_mask[(attention_mask != 0) & (attention_mask != 1)]
    if wrong_mask.size:
        raise ValueError(f"attention_mask must hold 1 (token) and 0 (padding) only; got {wrong_mask[0]}.")


def _read_files(manifest: Any) -> dict[str, str]:
    """Return the SHA-256 of each file that the manifest names."""
    file = "manifest.json"
    if (format_ := get(manifest, file, "a whole number", "format")) != FORMAT:
        raise ArtifactError(f"{file} must have format {FORMAT}; got {format_}. Use a newer program.")
    files = {}
    for name in sorted(get(manifest, file, "an object", "files")):
        # A plain name can't lead out of the folder, and can't break a line of SHA256SUMS.
        if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]*", name) or name in (file, "SHA256SUMS"):
            raise ArtifactError(f"{file}: files must hold plain file names; got {json.dumps(name)}.")
        files[name] = get(manifest, file, "a string", "files", name, "sha256")
        if not re.fullmatch("[0-9a-f]{64}", files[name]):
            raise ArtifactError(f"{file}: files.{name}.sha256 must be 64 lower-case hexadecimal digits.")
    return files


def _sha256sums(files: dict[str, str], manifest: bytes) -> bytes:
    hashes = {**files, "manifest.json": hashlib.sha256(manifest).hexdigest()}
    return "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes)).encode()


def _check_runtime(minimum: str) -> None:
    wanted = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", minimum, re.ASCII)
    if not wanted:
        raise ArtifactError(f"manifest.json: metadata.minimum_runtime.onnxruntime must be a version; got {minimum}.")
    here = re.match(r"(\d+)\.(\d+)\.(\d+)", onnxruntime.__version__)
    if not here or tuple(map(int, here.groups())) < tuple(map(int, wanted.groups())):
        raise ArtifactError(
            f"the artifact needs onnxruntime {minimum} or newer; this is {onnxruntime.__version__}. Upgrade it."
        )


def parse_json(data: bytes, file: str) -> Any:
    """Parse what is strictly JSON; `file` is named in the error."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        document = json.loads(data.decode("utf-8"), parse_constant=refuse, parse_int=read_int, parse_float=read_float)
        # Python reads half of a surrogate pair; other languages refuse it, and so does UTF-8.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise ArtifactError(f"{file} is not valid JSON. Fetch the artifact again.") from None
    return document


def read_float(digits: str) -> float:
    """Read a number of a JSON document, for `json.loads`.

    Raises:
        ValueError: if no double holds it; Python's own answer is infinity.
    """
    if math.isinf(value := float(digits)):
        raise ValueError(f"{digits} is beyond a double's range.")
    return value


def read_int(digits: str) -> int:
    """Read a number without fraction and exponent of a JSON document, as `read_float` does.

    Raises:
        ValueError: if no double holds it.
    """
    read_float(digits)
    return int(digits)


def get(document: Any, file: str, kind: str, *keys: str) -> Any:
    """Look a value up and check its kind, "a whole number" (0 … 2³¹ − 1) or one of `_KINDS`."""
    value = document
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            raise ArtifactError(f"{file}: {'.'.join(keys[: depth + 1])} is missing.")
        value = value[key]
    if not _is(value, kind):
        raise ArtifactError(f"{file}: {'.'.join(keys)} must be {kind}.")
    return value


def _is(value: Any, kind: str) -> bool:
    if kind == "a whole number":
        return type(value) is int and 0 <= value < 2**31
    # To Python true and false are numbers.
    return isinstance(value, _KINDS[kind]) and not isinstance(value, bool)


def _tensor(document: Any, file: str, kind: str, key: str, rank: int) -> npt.NDArray[Any]:
    """Look up numbers in equally long lists, `rank` deep."""
    lists = get(document, file, "a list", key)
    shape: list[int] = []
    first = lists
    while len(shape) < rank:
        shape.append(len(first) if isinstance(first, list) else 0)
        first = first[0] if shape[-1] else None

    def fits(value: Any, axis: int) -> bool:
        if axis == rank:
            return _is(value, kind)
        return isinstance(value, list) and len(value) == shape[axis] and all(fits(inner, axis + 1) for inner in value)

    if not fits(lists, 0):
        raise ArtifactError(f"{file}: {key} must hold numbers in equally long lists, {rank} deep.")
    return np.array(lists, dtype=np.int64 if kind == "a whole number" else np.float64).reshape(shape)


def _told(label: str | None) -> str:
    return "no label" if label is None else f"the label {label}"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
