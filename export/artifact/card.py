"""The model card, README.md of an artifact: what it is for, how good it is, how to use it, where it comes from."""

from typing import Any

from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS


def model_card(
    manifest: dict[str, Any], *, config: dict[str, Any], record: dict[str, Any], verification: dict[str, Any]
) -> str:
    """Write the card.

    Args:
        manifest: the manifest without `files`.
        config: config.json.
        record: the record of training.
        verification: verification.json.
    """
    metadata, data, test = manifest["metadata"], manifest["data"], manifest["metrics"]["test"]
    validation, encoder = manifest["metrics"]["validation"], config["encoder"]
    limits, rows, truncated = metadata["limits"], record["data"]["rows"], record["data"]["truncated_rows"]
    tolerance = verification["parity"]["tolerance"]["limit"]
    labels = "\n".join(f"| {index} | {label} |" for index, label in enumerate(metadata["labels"]))
    providers = ", ".join(f"{name.upper()}: {state}" for name, state in manifest["verification"]["providers"].items())
    return f"""\
# {manifest["name"]} {manifest["version"]}

A Transformer encoder for {metadata["task"]}: text in, one of {len(metadata["labels"])} labels out. Trained, exported,
verified and packaged by Ferry {metadata["versions"]["ferry"]}.

## Figures

| split | rows | accuracy | macro-F1 | rows longer than {limits["sequence_length"]["max"]} tokens |
|---|---|---|---|---|
| validation (chose the weights) | {rows["validation"]} | {_percent(validation["accuracy"])} | \
{_percent(validation["macro_f1"])} | {truncated["validation"]} |
| test (chose no weights) | {test["rows"]} | {_percent(test["accuracy"])} | {_percent(test["macro_f1"])} | \
{truncated["test"]} |

Proven: the PyTorch model, `model.pt` and `model.onnx` compute the same function, to {tolerance:.2g} on the logits,
over every shape and mask of `verification.json`. {providers}.

Not measured: texts of other domains or languages than the training data's; whether a probability is calibrated. The
model always names one of its labels, also for a text that none of them fits.

## Model

{record["training"]["parameters"]:,} parameters: {encoder["num_layers"]} layers, width {encoder["dim"]}, \
{encoder["num_heads"]} heads, feed-forward {encoder["hidden_dim"]},
{encoder["attention"]} attention, {encoder["position"]} positions, {encoder["norm"]}-norm, {encoder["activation"]}, \
pooling {config["pooling"]}, {config["head"]} head.

## Data

{data["name"]} ({data["origin"]}), {rows["train"]} rows for training. Licence: {data["licence"]}.
{data["attribution"]}

## Contract

- Text: {metadata["text"]["encoding"]}; {metadata["text"]["nul"]}; {metadata["text"]["white_space"]}.
  {metadata["text"]["special_tokens"]}; {metadata["text"]["truncation"]}.
- Inputs: `{INPUT_IDS}` and `{ATTENTION_MASK}`, (batch, sequence) int64; 1 marks a token, 0 padding, anywhere in a row.
  Batch at least {limits["batch_size"]["min"]}; sequence {limits["sequence_length"]["min"]} to \
{limits["sequence_length"]["max"]}, padding included; ids {limits["input_ids"]["min"]} to {limits["input_ids"]["max"]}.
- Output: `{LOGITS}`, (batch, {len(metadata["labels"])}) float32; {metadata["activation"]} makes them probabilities.
- Runs on ONNX Runtime {metadata["minimum_runtime"]["onnxruntime"]} and libtorch \
{metadata["minimum_runtime"]["libtorch"]}, or newer.

`manifest.json` holds all of this for programs, `goldens.json` inputs and outputs to replay, `SHA256SUMS` every hash
(`sha256sum -c SHA256SUMS`).

## Labels

| id | label |
|---|---|
{labels}
"""


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
