"""The model card, README.md of an artifact: what it is for, how good it is, how to use it, where it comes from."""

import re
from typing import Any

from export.artifact.layout import CONFUSION_FILE, EVALUATION_FILE, RELIABILITY_FILE
from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS

# Calibration on fewer answers says little of a probability: their share is known to ±7 points at best.
FEW_ANSWERS = 200
# Labels that the card lists one by one; of more, those with the lowest F1 are listed, and evaluation.json has all.
MOST_LABELS = 200

# What metrics are called, in the order in which they are shown, where the task has them.
FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "span_f1": "span F1",
    "ece_before": "calibration error without the temperature",
    "ece": "and with it",
}


def model_card(
    manifest: dict[str, Any],
    *,
    config: dict[str, Any],
    record: dict[str, Any],
    verification: dict[str, Any],
    evaluation: dict[str, Any],
) -> str:
    """Write the card.

    Args:
        manifest: the manifest without `files`.
        config: config.json.
        record: the record of training.
        verification: verification.json.
        evaluation: evaluation.json.
    """
    metadata, data, encoder = manifest["metadata"], manifest["data"], config["encoder"]
    limits, rows, truncated = metadata["limits"], record["data"]["rows"], record["data"]["truncated_rows"]
    tolerance = verification["parity"]["tolerance"]["limit"]
    output = ", ".join(map(str, metadata["outputs"][LOGITS]["axes"][:-1])) + f", {len(metadata['labels'])}"
    per_word = metadata["pooling"] is None
    answers = "a label for each word" if per_word else f"one of {len(metadata['labels'])} labels"
    pooling = "" if per_word else f" pooling {config['pooling']},"
    providers = ", ".join(f"{name.upper()}: {state}" for name, state in manifest["verification"]["providers"].items())
    return f"""\
# {manifest["name"]} {manifest["version"]}

A Transformer encoder for {metadata["task"]}: text in, {answers} out. Trained, exported, verified and packaged by
Ferry {metadata["versions"]["ferry"]}.

## Figures

{_figures(manifest["metrics"], rows, truncated)}

{_precisions(verification["precisions"])}\
{_few_answers(manifest["metrics"]["validation"])}\
{_none_of_these(metadata["threshold"], manifest["metrics"]["test"], per_word=per_word)}

Proven: the PyTorch model, `model.pt`, `model.pt2` and `model.onnx` compute the same function, to {tolerance:.2g} on the
logits, over every shape and mask of `verification.json`. {providers}. {_effort(verification)}

Not measured: texts of other domains or languages than the training data's.

![Reliability: accuracy over probability]({RELIABILITY_FILE})

![Confusions of the test split]({CONFUSION_FILE})

## Model

{record["training"]["parameters"]:,} parameters: layers {encoder["num_layers"]}, width {encoder["dim"]}, \
{encoder["num_heads"]} heads, feed-forward {encoder["hidden_dim"]},
{encoder["attention"]} attention, {encoder["position"]} positions, {encoder["norm"]}-norm, \
{encoder["activation"]},{pooling} {config["head"]} head.

## Data

{data["name"]} ({data["origin"]}), {rows["train"]:,} rows for training. Licence: {data["licence"]}.
{_attribution(data)}
## Contract

- Text: {metadata["text"]["encoding"]}; {metadata["text"]["nul"]}; {metadata["text"]["white_space"]}.
  {metadata["text"]["special_tokens"]}; {metadata["text"]["truncation"]}.
- Inputs: `{INPUT_IDS}` and `{ATTENTION_MASK}`, (batch, sequence) int64; 1 marks a token, 0 padding, anywhere in a row.
  Batch at least {limits["batch_size"]["min"]}; sequence {limits["sequence_length"]["min"]} to \
{limits["sequence_length"]["max"]}, padding included; ids {limits["input_ids"]["min"]} to {limits["input_ids"]["max"]}.
- Output: `{LOGITS}`, ({output}) float32. {metadata["activation"].capitalize()} of logits / {metadata["temperature"]}
  makes them probabilities; the label is the most probable one{_below(metadata["threshold"])}.
- Runs on ONNX Runtime {metadata["minimum_runtime"]["onnxruntime"]} and libtorch \
{metadata["minimum_runtime"]["libtorch"]}, or newer.

`manifest.json` holds all of this for programs, `goldens.json` inputs and outputs to replay, `SHA256SUMS` every hash
(`sha256sum -c SHA256SUMS`).

## Labels

{_labels(evaluation["labels"])}

{_mistakes(evaluation["confusions"])}
"""


def _effort(verification: dict[str, Any]) -> str:
    """Say how hard the proof was tried: what was drawn, and what was left out."""
    asked = sum(search["asked"] for search in verification["searches"])
    drawn = sum(search["drawn"] for search in verification["searches"])
    cut = f" of {asked:,}, for the time was up" if drawn < asked else ""
    left_out = [f"Not run: {name} ({reason})." for name, reason in verification["skipped"].items()]
    return " ".join([f"Inputs drawn at random: {drawn:,}{cut}.", *left_out])


def _figures(metrics: dict[str, dict[str, float]], rows: dict[str, int], truncated: dict[str, int]) -> str:
    shown = {key: figure for key, figure in FIGURES.items() if key in metrics["test"]}
    head = ["split", "rows", *shown.values(), "rows cut at the length limit"]
    lines = [head, ["---"] * len(head)]
    for split, role in (("validation", "validation (chose weights, temperature, threshold)"), ("test", "test")):
        figures = [_percent(metrics[split][key]) for key in shown]
        lines.append([role, f"{rows[split]:,}", *figures, f"{truncated[split]:,}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _precisions(rows: list[dict[str, Any]]) -> str:
    """Lay the ONNX files side by side, where there is more than one."""
    if len(rows) < 2:
        return ""
    lines = [["file", "precision", "accuracy", "macro-F1", "MB"], ["---"] * 5]
    lines += [
        [
            f"`{row['file']}`",
            row["precision"],
            _percent(row["accuracy"]),
            _percent(row["macro_f1"]),
            f"{row['bytes'] / 1e6:.2f}",
        ]
        for row in rows
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"On the test split, the threshold aside, by ONNX file:\n\n{table}\n\n"


def _attribution(data: dict[str, Any]) -> str:
    # Own data of which nothing is stated says so once.
    return "" if data["attribution"] == data["licence"] else f"{data['attribution']}\n"


def _below(threshold: float) -> str:
    return f", and none below {threshold}" if threshold else ""


def _few_answers(validation: dict[str, float]) -> str:
    """Warn where probabilities rest on few answers."""
    if validation["answers"] >= FEW_ANSWERS:
        return ""
    return (
        f"**Temperature and threshold were chosen on {validation['answers']} answers of the validation split, and so "
        "few say little: take the probabilities for an order, not for shares.**\n\n"
    )


def _none_of_these(threshold: float, test: dict[str, float], *, per_word: bool) -> str:
    """Say what the threshold does on the test split."""
    if threshold == 0:
        always = "Every word gets one of the labels" if per_word else "The model always names one of its labels"
        return f"{always}, also where none fits: the threshold is 0."
    sentence = (
        f"Below a probability of {threshold} the answer is none of the labels (`null`). On the test split "
        f"{_percent(test['answered'])} of the texts are answered"
    )
    if "accuracy_answered" in test:
        sentence += f", {_percent(test['accuracy_answered'])} of those rightly"
    if "none_rejected" in test:
        sentence += f"; of {test['none_rows']} texts that fit no label, {_percent(test['none_rejected'])} are rejected"
    return f"{sentence}."


def _labels(report: list[dict[str, Any]]) -> str:
    rows = list(enumerate(report))
    note = ""
    if len(rows) > MOST_LABELS:
        note = f"The {MOST_LABELS} of {len(rows)} labels with the lowest F1; `{EVALUATION_FILE}` has all.\n\n"
        rows = sorted(rows, key=lambda row: (row[1]["f1"] is not None, row[1]["f1"] or 0.0, row[0]))[:MOST_LABELS]
    lines = [
        f"| {index} | {_cell(row['label'])} | {_share(row['precision'])} | {_share(row['recall'])} | "
        f"{_share(row['f1'])} | {row['expected']} |"
        for index, row in rows
    ]
    return (
        f"{note}On the test split, the threshold aside:\n\n"
        f"| id | label | precision | recall | F1 | expected |\n|---|---|---|---|---|---|\n" + "\n".join(lines)
    )


def _mistakes(confusions: list[dict[str, Any]]) -> str:
    if not confusions:
        return "No mistake was made on the test split."
    lines = [f"| {_cell(row['expected'])} | {_cell(row['given'])} | {row['count']} |" for row in confusions[:10]]
    return "The most frequent mistakes:\n\n| expected | given | times |\n|---|---|---|\n" + "\n".join(lines)


def _cell(text: str) -> str:
    """Write a label so that it is text in a Markdown table, whatever it holds."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~-])", r"\\\1", text)


def _share(share: float | None) -> str:
    return "-" if share is None else _percent(share)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
