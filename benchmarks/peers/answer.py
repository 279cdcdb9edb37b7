"""Answers as peers do, one request at a time: `python answer.py FOLDER THREADS CANDIDATE…`.

Runs with the interpreter of the peers' environment. FOLDER is what make_models.py made of one model, CANDIDATE a key of
CANDIDATES. Requests and answers are lines of JSON on standard input and output:

    {"prepare": candidate, "batch": FILE.npz}   ->  {"logits": [[…]]}     one answer, not timed
    {"answer": candidate, "times": n}           ->  {"seconds": [n times]}, of the batch prepared last

What a candidate returns are logits, but for sentence-transformers, whose answer is one vector a row.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np

Array = np.ndarray[Any, Any]
Once = Callable[[], Array]
# Takes ids and mask (batch, sequence) int64, padded on the right.
Prepare = Callable[[Array, Array], Once]


def load_eager(folder: Path, threads: int) -> Prepare:
    """Load Hugging Face's model as it is."""
    _use_threads(threads)
    return _torch_model(_hugging_face(folder))


def load_compiled(folder: Path, threads: int) -> Prepare:
    """Load Hugging Face's model under torch.compile."""
    import torch

    _use_threads(threads)
    # A graph for each shape is what is fastest; a mask changes no shape.
    return _torch_model(torch.compile(_hugging_face(folder), dynamic=False))


def load_transformer_encoder(folder: Path, threads: int) -> Prepare:
    """Load BERT's weights into PyTorch's own encoder."""
    _use_threads(threads)
    return _torch_model(_transformer_encoder(_hugging_face(folder)))


def _use_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _hugging_face(folder: Path) -> Any:
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification.from_pretrained(folder / "hf").eval()


def _torch_model(model: Any) -> Prepare:
    import torch

    def prepare(ids: Array, mask: Array) -> Once:
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

        def once() -> Array:
            with torch.inference_mode():
                logits: Array = model(**inputs).logits.numpy()
            return logits

        return once

    return prepare


def _transformer_encoder(bert: Any) -> Any:
    """Return PyTorch's encoder, on its fast path, with BERT's weights, between BERT's embeddings and classifier."""
    import torch
    from torch import nn

    config = bert.config
    layer = nn.TransformerEncoderLayer(
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        activation="gelu",
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
    )
    encoder = nn.TransformerEncoder(layer, config.num_hidden_layers, enable_nested_tensor=True)
    for own, theirs in zip(encoder.layers, bert.bert.encoder.layer, strict=True):
        attention = theirs.attention.self
        parts = (attention.query, attention.key, attention.value)
        own.load_state_dict(
            {
                "self_attn.in_proj_weight": torch.cat([part.weight for part in parts]),
                "self_attn.in_proj_bias": torch.cat([part.bias for part in parts]),
                **_named("self_attn.out_proj", theirs.attention.output.dense),
                **_named("norm1", theirs.attention.output.LayerNorm),
                **_named("linear1", theirs.intermediate.dense),
                **_named("linear2", theirs.output.dense),
                **_named("norm2", theirs.output.LayerNorm),
            }
        )

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings, self.encoder = bert.bert.embeddings, encoder
            self.pooler, self.classifier = bert.bert.pooler, bert.classifier

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            x = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
            return _Logits(self.classifier(self.pooler(x)))

    return Classifier().eval()


class _Logits:
    def __init__(self, logits: Any) -> None:
        self.logits = logits


def _named(name: str, module: Any) -> dict[str, Any]:
    return {f"{name}.{key}": value for key, value in module.state_dict().items()}


def load_sentence_transformer(folder: Path, threads: int) -> Prepare:
    """Load sentence-transformers' ONNX backend with the session's options that every candidate has."""
    import onnxruntime as ort
    import torch
    from sentence_transformers import SentenceTransformer

    _use_threads(threads)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    model = SentenceTransformer(
        str(folder / "sentence-transformers"),
        backend="onnx",
        device="cpu",
        local_files_only=True,
        model_kwargs={
            "file_name": "model.onnx",
            "subfolder": "onnx",
            "provider": "CPUExecutionProvider",
            "session_options": options,
        },
    )

    def prepare(ids: Array, mask: Array) -> Once:
        features = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
            "token_type_ids": torch.zeros(ids.shape, dtype=torch.int64),
        }

        def once() -> Array:
            # A copy: the modules write into what they are given.
            with torch.inference_mode():
                vectors: Array = model(dict(features))["sentence_embedding"].numpy()
            return vectors

        return once

    return prepare


def load_openvino(folder: Path, threads: int) -> Prepare:
    """Load Optimum's plain export, in float32 and for the shortest answer."""
    import openvino as ov

    compiled = ov.Core().compile_model(
        folder / "plain" / "model.onnx",
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        },
    )

    def prepare(ids: Array, mask: Array) -> Once:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        request = compiled.create_infer_request()

        def once() -> Array:
            request.infer(inputs, share_inputs=True)
            logits: Array = request.get_output_tensor().data
            return logits

        return once

    return prepare


def load_ctranslate2(folder: Path, threads: int) -> Prepare:
    """Load the converted encoder in float32; the classifier's one matrix is multiplied by NumPy."""
    import ctranslate2
    from safetensors.numpy import load_file

    encoder = ctranslate2.Encoder(
        str(folder / "ctranslate2"), device="cpu", compute_type="float32", intra_threads=threads, inter_threads=1
    )
    weights = load_file(folder / "hf" / "model.safetensors")
    weight, bias = weights["classifier.weight"].T.copy(), weights["classifier.bias"]

    def prepare(ids: Array, mask: Array) -> Once:
        dense = ctranslate2.StorageView.from_array(ids.astype(np.int32))
        lengths = ctranslate2.StorageView.from_array(mask.sum(axis=1).astype(np.int32))

        def once() -> Array:
            pooled = np.array(encoder.forward_batch(dense, lengths).pooler_output)
            logits: Array = pooled @ weight + bias
            return logits

        return once

    return prepare


CANDIDATES: dict[str, Callable[[Path, int], Prepare]] = {
    "eager": load_eager,
    "compile": load_compiled,
    "transformer-encoder": load_transformer_encoder,
    "sentence-transformers": load_sentence_transformer,
    "openvino": load_openvino,
    "ctranslate2": load_ctranslate2,
}


def serve(candidates: dict[str, Prepare], read: Any, write: Any) -> None:
    """Answer until the requests end."""
    ready: dict[str, Once] = {}
    for line in read:
        request = json.loads(line)
        if "prepare" in request:
            with np.load(request["batch"]) as batch:
                ids, mask = batch["ids"], batch["mask"]
            ready[request["prepare"]] = once = candidates[request["prepare"]](ids, mask)
            answer: dict[str, Any] = {"logits": once().tolist()}
        else:
            once, seconds = ready[request["answer"]], []
            for _ in range(request["times"]):
                start = time.perf_counter()
                once()
                seconds.append(time.perf_counter() - start)
            answer = {"seconds": seconds}
        print(json.dumps(answer), file=write, flush=True)


def main() -> None:
    """Load the candidates, say so, and answer."""
    warnings.simplefilter("ignore")
    # Libraries print; what they print is no answer.
    write = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    folder, threads, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    candidates = {name: CANDIDATES[name](folder, threads) for name in names}
    print(json.dumps({"candidates": names}), file=write, flush=True)
    serve(candidates, sys.stdin, write)


if __name__ == "__main__":
    main()
