"""Goldens: texts with their ids and logits, and batches with theirs, for a consumer in any language to replay.

The logits are the float64 reference's, so that no backend is judged by another's rounding. Nothing here comes from the
training data: texts are the configuration's own and the ones below, ids are synthetic.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from export.artifact.load import Artifact, Classifier, Tagger, Tagging, decide, tag_words
from export.contract import FORMAT, LOGITS
from export.model import model_labels, model_limits, model_task
from export.precision_files import OPTIONAL_FILES
from export.proof.runtimes import Runtime
from export.tokenizer import Tokenizer, pad_batch

# What text rules, byte fallback and truncation are most easily got wrong on.
HOSTILE_TEXTS = (
    "",
    " \t\r\n\v\f ",
    "two  spaces\tand\r\na new line",
    "a NUL\0inside",
    "Grüße, naïve café — “quotes” …",
    "e\u0301 is e with a combining acute; \u00e9 is one character",
    "שלום עולם, مرحبا بالعالم",
    "許諾条件に従ってください。",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 and flag \U0001f1ea\U0001f1fa",
    "no-break\u00a0space, ideographic\u3000space, zero\u200bwidth, next\u0085line",
    "<pad> <unk> <cls> <sep> <mask> <s> </s> <0x41>",
    "\u2581 typed \u2581at both ends\u2581",
    "0123456789" * 3,
    "x",
)
# In a language-neutral file a probability is compared after each language's own exponential.
PROBABILITY_TOLERANCE = 1e-4
# Two runs of float64 may differ in its last bits, for sums follow where memory happens to lie. Rounded to a hundredth
# of the tolerance, or to seven decimals where that is finer, they are alike.
_DECIMALS = 7
# How much further than any answer of the test split a golden of int8 may lie.
INT8_MARGIN = 2.0

Ids = npt.NDArray[np.int64]


def bound_hashes(metadata: dict[str, Any]) -> dict[str, str]:
    """Return the hashes of what an answer follows from, configuration, tokenizer, weights; and who exported the models.

    They stand in goldens.json too, so that whoever holds genuine goldens holds the whole contract: a label that no
    golden is answered with, or a threshold between two probabilities, can't be changed behind their back. Nor can a
    file pass for that of another exporter, whose graphs nothing here can be compared with.
    """
    return {
        "config_sha256": metadata["config_sha256"],
        "tokenizer_sha256": metadata["tokenizer"]["sha256"],
        "weights_sha256": metadata["weights_sha256"],
        **{f"{name} version": version for name, version in metadata["versions"].items()},
    }


def make_goldens(
    texts: list[str],
    *,
    tokenizer: Tokenizer,
    reference: Runtime,
    config: dict[str, Any],
    metadata: dict[str, Any],
    tolerance: float,
    precisions: dict[str, float],
) -> dict[str, Any]:
    """Compute goldens.json.

    Args:
        texts: texts that anyone may read; the hostile ones and one that is too long are added.
        tokenizer: the artifact's.
        reference: the float64 reference.
        config: config.json.
        metadata: what the model files carry.
        tolerance: the absolute tolerance on logits that verification derived.
        precisions: the tolerances of other precisions, by file.
    """
    max_length = model_limits(config).max_length
    too_long = "an over-long text is cut " * max_length
    make_golden = _golden_words if model_task(config).per_token else _golden_text
    decimals = max(_DECIMALS, 2 - math.floor(math.log10(tolerance))) if tolerance else _DECIMALS
    cases = []
    for text in dict.fromkeys([*texts, *HOSTILE_TEXTS, too_long]):
        golden, logits, answers = make_golden(text, tokenizer, reference, config, decimals)
        if _has_one_answer(logits, answers, config, tolerance):
            cases.append(golden)
    return {
        "format": FORMAT,
        "bound": bound_hashes(metadata),
        "tolerance": {
            LOGITS: tolerance,
            "probabilities": PROBABILITY_TOLERANCE,
            **({"precisions": precisions} if precisions else {}),
            "reason": "logits: 4 times the error of eager float32 against float64, and 4 roundings (verification.json)",
        },
        "texts": cases,
        "batches": [
            {
                "name": name,
                "input_ids": input_ids.tolist(),
                "attention_mask": attention_mask.tolist(),
                LOGITS: _nested_floats(reference.run(input_ids, attention_mask), decimals),
            }
            for name, (input_ids, attention_mask) in _batches(tokenizer.vocab_size, max_length).items()
        ],
    }


Answers = list[tuple[str | None, float]]


def _golden_text(
    text: str, tokenizer: Tokenizer, reference: Runtime, config: dict[str, Any], decimals: int
) -> tuple[dict[str, Any], npt.NDArray[Any], Answers]:
    """Compute a text's golden, the logits that its answer comes from, (1, labels), and the answer."""
    encoding = tokenizer.encode(text)
    logits = reference.run(*pad_batch([encoding]))
    answers = decide(logits, model_labels(config), config["temperature"], config["threshold"])
    golden = {
        "text": text,
        "input_ids": encoding.ids,
        "dropped": encoding.dropped,
        LOGITS: _nested_floats(logits[0], decimals),
        "label": answers[0][0],
        "probability": round(answers[0][1], _DECIMALS),
    }
    return golden, logits, answers


def _golden_words(
    text: str, tokenizer: Tokenizer, reference: Runtime, config: dict[str, Any], decimals: int
) -> tuple[dict[str, Any], npt.NDArray[Any], Answers]:
    """The same for a text whose words are labelled: the logits are (words, labels)."""
    encoding = tokenizer.encode_words(text)
    (logits,) = reference.run(*pad_batch([encoding]))
    answers = decide(logits[encoding.firsts], model_labels(config), config["temperature"], config["threshold"])
    golden = {
        "text": text,
        "input_ids": encoding.ids,
        "dropped": encoding.dropped,
        LOGITS: _nested_floats(logits, decimals),
        "words": [
            vars(word) | {"probability": round(word.probability, _DECIMALS)} for word in tag_words(encoding, answers)
        ],
    }
    return golden, logits[encoding.firsts], answers


def _has_one_answer(logits: npt.NDArray[Any], answers: Answers, config: dict[str, Any], tolerance: float) -> bool:
    """Whether rounding can decide nothing: no two labels nearly tie, and no probability lies near the threshold."""
    clear = [_margin(row) > 2 * tolerance for row in logits]
    decided = [abs(probability - config["threshold"]) > PROBABILITY_TOLERANCE for _, probability in answers]
    return all(clear) and all(decided)


def golden_tolerance(verification: dict[str, Any]) -> float:
    """Return the tolerance on logits: of the grid's and the test split's the larger, for goldens are like both."""
    return float(max(verification[part]["tolerance"]["limit"] for part in ("parity", "test_split")))


def precision_tolerances(verification: dict[str, Any]) -> dict[str, float]:
    """Return the tolerance on the logits of each file of another precision, by its name.

    float16 has a limit, as float32 has. int8 is another function by design, so its logits lie further from the goldens
    than rounding explains: as far as verification saw on the grid and the test split, and twice that on texts of its
    own. That binds no label: labels were judged on the whole test split.
    """
    found = {}
    for row in verification["precisions"]:
        file, precision = row["file"], row["precision"]
        if file not in OPTIONAL_FILES:
            continue
        parts = [verification[part] for part in ("parity", "test_split")]
        if precision in parts[0]["tolerances"]:
            found[file] = float(max(part["tolerances"][precision]["limit"] for part in parts))
        else:
            errors = [own["max_error"] for part in parts for own in part["backends"] if own["precision"] == precision]
            found[file] = INT8_MARGIN * max(errors)
    return found


def replay_precision(
    name: str, run: Callable[[Ids, Ids], npt.NDArray[Any]], goldens: dict[str, Any], tolerance: float
) -> list[str]:
    """Replay the ids of goldens on a file of another precision, and return whose logits are too far away."""
    cases = [
        (f"golden text {number}", [case["input_ids"]], [[1] * len(case["input_ids"])], [case[LOGITS]])
        for number, case in enumerate(goldens["texts"], start=1)
    ]
    cases += [
        (f"golden batch {case['name']}", case["input_ids"], case["attention_mask"], case[LOGITS])
        for case in goldens["batches"]
    ]
    problems = []
    for where, input_ids, attention_mask, logits in cases:
        try:
            got = run(np.array(input_ids, np.int64), np.array(attention_mask, np.int64))
        except ValueError as error:
            problems.append(f"{name}: {where} is refused: {error}")
            continue
        problems += _compare(f"{name}: {where}", got, np.array(logits), tolerance)
    return problems


def replay_goldens(artifact: Artifact, model: Classifier | Tagger, goldens: dict[str, Any]) -> list[str]:
    """Replay goldens on one model of an artifact and return what differs."""
    name = model.runtime.name
    problems = []
    tolerance = goldens["tolerance"]
    for number, case in enumerate(goldens["texts"], start=1):
        where = f"{name}: golden text {number}"
        encoding = model.tokenizer.encode(case["text"])
        if [encoding.ids, encoding.dropped] != [case["input_ids"], case["dropped"]]:
            problems.append(f"{where} has other ids than the tokenizer gives.")
            continue
        logits = model.logits(*pad_batch([encoding]))
        problems += _compare(where, logits, np.array([case[LOGITS]]), tolerance[LOGITS])
        (answer,) = model.predict([case["text"]])
        if isinstance(answer, Tagging):
            got, wanted = list(map(vars, answer.words)), case["words"]
        else:
            got, wanted = [vars(answer)], [case]
        problems += _compare_answers(where, got, wanted, tolerance["probabilities"])
    for case in goldens["batches"]:
        where = f"{name}: golden batch {case['name']}"
        try:
            logits = model.logits(np.array(case["input_ids"]), np.array(case["attention_mask"]))
        except ValueError as error:
            # By limits that are not those of the genuine artifact.
            problems.append(f"{where} is refused: {error}")
            continue
        problems += _compare(where, logits, np.array(case[LOGITS]), tolerance[LOGITS])
    return problems


def _compare_answers(
    where: str, got: list[dict[str, Any]], wanted: list[dict[str, Any]], tolerance: float
) -> list[str]:
    if [part.get("word") for part in got] != [part.get("word") for part in wanted]:
        return [f"{where} has other words."]
    problems = []
    for mine, golden in zip(got, wanted, strict=True):
        if mine["label"] != golden["label"]:
            problems.append(f"{where} is answered {mine['label']!r}; wanted {golden['label']!r}.")
        # Written so that NaN fails.
        if not abs(mine["probability"] - golden["probability"]) <= tolerance:
            problems.append(f"{where} has probability {mine['probability']}; wanted {golden['probability']}.")
    return problems


def _compare(where: str, got: npt.NDArray[Any], wanted: npt.NDArray[Any], tolerance: float) -> list[str]:
    if got.shape != wanted.shape:
        return [f"{where} has logits of shape {got.shape}; wanted {wanted.shape}."]
    distance = float(np.abs(got - wanted).max())
    # Written so that NaN fails.
    return [] if distance <= tolerance else [f"{where} is off by {distance:.3g}; the tolerance is {tolerance:.3g}."]


def _margin(logits: npt.NDArray[Any]) -> float:
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def _nested_floats(values: npt.NDArray[Any], decimals: int) -> list[Any]:
    assert np.isfinite(values).all()
    # Python's own rounding takes any number of decimals.
    rounded = [round(value, decimals) for value in values.astype(np.float64).ravel().tolist()]
    nested: Any = np.array(rounded).reshape(values.shape).tolist()
    return list(nested)


def _batches(vocab_size: int, max_length: int) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Synthetic batches, one for each way of padding that the contract allows."""
    generator = np.random.default_rng(0)
    length = min(9, max_length)

    def ids(batch: int, columns: int) -> npt.NDArray[np.int64]:
        return generator.integers(0, vocab_size, (batch, columns), dtype=np.int64)

    columns = np.arange(length)
    counts = np.array([[length], [max(1, length // 2)], [1]])
    right = (columns < counts).astype(np.int64)
    holes = np.tile((columns % 3 != 1).astype(np.int64), (2, 1))
    with_empty = right.copy()
    with_empty[1] = 0
    return {
        "right padding": (ids(3, length), right),
        "left padding": (ids(3, length), right[:, ::-1].copy()),
        "holes": (ids(2, length), holes),
        "an empty row": (ids(3, length), with_empty),
        "one token": (ids(1, 1), np.ones((1, 1), dtype=np.int64)),
        "the longest sequence": (ids(1, max_length), np.ones((1, max_length), dtype=np.int64)),
    }
