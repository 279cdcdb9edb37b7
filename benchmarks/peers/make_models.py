"""Makes the peers' model files: `python make_models.py TARGET JOB`, with the Python of the peers' environment.

JOB is a JSON file: {name: {"bert": {…}, "forms": […]}}, where `bert` are arguments of BertConfig and `forms` are keys
of FORMS. For each name a BERT classifier with random weights, seeded, is saved in TARGET/name/hf and written in each
form to TARGET/name/<form>. Nothing is asked of a model hub.
"""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import torch
from optimum.exporters.onnx import main_export
from optimum.onnxruntime import AutoOptimizationConfig, AutoQuantizationConfig, ORTOptimizer, ORTQuantizer
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

SEED = 0
HF, ONNX = "hf", "model.onnx"
PLAIN = "plain"
SENTENCE_TRANSFORMERS = "sentence-transformers"
CTRANSLATE2 = "ctranslate2"


def make_model(folder: Path, bert: dict[str, int]) -> None:
    """Save a BERT classifier with random weights, and a tokenizer that gives each word `t<id>` its id."""
    torch.manual_seed(SEED)
    config = BertConfig(**bert)
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"t{index}" for index in range(len(words), config.vocab_size)]
    file = folder / "vocab.txt"
    file.write_text("\n".join(words), "utf-8")
    BertTokenizerFast(vocab_file=str(file), model_max_length=config.max_position_embeddings).save_pretrained(folder)


def export_plain(folder: Path) -> None:
    main_export(str(folder / HF), output=folder / PLAIN, task="text-classification", do_validation=False)


def optimise(folder: Path, level: str) -> None:
    """Let Optimum optimise its own plain export, at O1, O2 or O3."""
    optimizer = ORTOptimizer.from_pretrained(folder / PLAIN, file_names=[ONNX])
    optimizer.optimize(
        save_dir=folder / level, optimization_config=getattr(AutoOptimizationConfig, level)(), file_suffix=""
    )


def quantise(folder: Path, source: str, target: str, *, per_channel: bool) -> None:
    """Quantise a form with Optimum's settings for AVX-512 VNNI, dynamic: uint8 activations, int8 weights."""
    config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=per_channel)
    quantizer = ORTQuantizer.from_pretrained(folder / source, file_name=ONNX)
    quantizer.quantize(save_dir=folder / target, quantization_config=config, file_suffix="")


def quantise_fused(folder: Path, source: str, target: str, *, per_channel: bool) -> None:
    """Do the same for a graph with ONNX Runtime's own operators, behind which no type is inferred.

    Optimum's quantizer stops there; ONNX Runtime's, which it calls, takes the type as an option that Optimum does not
    hand on.
    """
    from onnx import TensorProto
    from onnxruntime.quantization import quantize_dynamic

    config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=per_channel)
    (folder / target).mkdir()
    quantize_dynamic(
        folder / source / ONNX,
        folder / target / ONNX,
        op_types_to_quantize=config.operators_to_quantize,
        per_channel=config.per_channel,
        reduce_range=config.reduce_range,
        weight_type=config.weights_dtype,
        extra_options={
            "WeightSymmetric": config.weights_symmetric,
            "ActivationSymmetric": config.activations_symmetric,
            "EnableSubgraph": False,
            "ForceSymmetric": config.activations_symmetric and config.weights_symmetric,
            "DefaultTensorType": TensorProto.FLOAT,
        },
    )


def make_sentence_transformer(folder: Path) -> None:
    """Save the encoder with mean pooling, and its ONNX export where the library looks for it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    encoder = folder / "encoder"
    BertModel.from_pretrained(folder / HF).save_pretrained(encoder)
    BertTokenizerFast.from_pretrained(folder / HF).save_pretrained(encoder)
    transformer = Transformer(str(encoder))
    pooling = Pooling(transformer.get_word_embedding_dimension())
    target = folder / SENTENCE_TRANSFORMERS
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(target))
    main_export(str(encoder), output=target / "onnx", task="feature-extraction", do_validation=False)


def make_ctranslate2(folder: Path) -> None:
    """Convert the encoder; the classifier's one matrix stays in the Hugging Face file."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(folder / "encoder")).convert(str(folder / CTRANSLATE2))


# In this order: a form may be made of one before it.
FORMS: dict[str, Callable[[Path], None]] = {
    PLAIN: export_plain,
    "O1": lambda folder: optimise(folder, "O1"),
    "O2": lambda folder: optimise(folder, "O2"),
    "O3": lambda folder: optimise(folder, "O3"),
    "plain-int8": lambda folder: quantise(folder, PLAIN, "plain-int8", per_channel=False),
    "plain-int8-channel": lambda folder: quantise(folder, PLAIN, "plain-int8-channel", per_channel=True),
    "O3-int8": lambda folder: quantise_fused(folder, "O3", "O3-int8", per_channel=False),
    "O3-int8-channel": lambda folder: quantise_fused(folder, "O3", "O3-int8-channel", per_channel=True),
    SENTENCE_TRANSFORMERS: make_sentence_transformer,
    CTRANSLATE2: make_ctranslate2,
}


def main() -> None:
    """Make every form of every model that the job names."""
    # The exporters warn of what they do for every model; what fails raises.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    target, job = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text("utf-8"))
    for name, model in job.items():
        folder = target / name
        make_model(folder / HF, model["bert"])
        for form in FORMS:
            if form in model["forms"]:
                print(f"{name}: {form}", file=sys.stderr, flush=True)
                FORMS[form](folder)
        shutil.rmtree(folder / "encoder", ignore_errors=True)


if __name__ == "__main__":
    main()
