"""One small job carried all the way once; tests read it, and copy what they want to break."""

import gc
import random
import shutil
from pathlib import Path

import pytest
import torch

from pipeline.export import export
from pipeline.package import package
from pipeline.train import train
from pipeline.verify import verify
from tests.questions import QUICK

SMALL = """
name = "small"
[tokenizer]
vocab_size = 600
[model]
max_len = 24
dim = 32
num_layers = 1
num_heads = 2
hidden_dim = 64
attention = "{attention}"
position = "{position}"
pooling = "mean_max"
[training]
threads = 1
epochs = 1
batch_tokens = 2048
learning_rate = 3e-3
warmup_steps = 20
[package]
golden_texts = ["Licensed under the Apache License, Version 2.0", "SPDX-License-Identifier: MIT"]
"""


@pytest.fixture(scope="session", autouse=True)
def _lean():
    # Small tensors gain nothing from a second thread, and on a busy machine they wait for it.
    torch.set_num_threads(1)
    # An export makes millions of objects; looking through all of them so often takes a tenth of its time.
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def small_config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(SMALL.format(attention="sdpa", position="learned"))
    return path


@pytest.fixture(scope="session")
def small_run(tmp_path_factory, small_config) -> Path:
    """A run folder after train, export and verify. Read only."""
    run = tmp_path_factory.mktemp("small") / "run"
    train(small_config, run, show=False)
    export(run, show=False)
    assert verify(run, QUICK, show=False).passed
    return run


@pytest.fixture(scope="session")
def artifact(tmp_path_factory, small_run) -> Path:
    """The packaged folder of that run. Read only."""
    return package(small_run, "1.0.0", tmp_path_factory.mktemp("artifacts")).folder


@pytest.fixture(scope="session")
def other_artifact(tmp_path_factory, small_run) -> Path:
    """An artifact of the same shapes with other weights: another seed's."""
    folder = tmp_path_factory.mktemp("other")
    config = folder / "other.toml"
    text = SMALL.format(attention="sdpa", position="learned")
    config.write_text(text.replace("[training]", "[training]\nseed = 1"))
    train(config, folder / "run", show=False)
    export(folder / "run", show=False)
    assert verify(folder / "run", QUICK, show=False).passed
    return package(folder / "run", "1.0.0", folder / "artifacts").folder


TAGS = """
name = "tags"
[tokenizer]
vocab_size = 400
[model]
max_len = 20
dim = 32
num_layers = 1
num_heads = 2
hidden_dim = 64
[training]
threads = 1
epochs = 12
batch_tokens = 1024
learning_rate = 5e-3
warmup_steps = 10
[package]
golden_texts = ["play some jazz in berlin", "stop"]
"""
_VERBS, _KINDS, _PLACES = ("play", "find", "book"), ("jazz", "soft rock", "blues"), ("berlin", "new york", "rome")


def conll_rows(count: int, seed: int) -> str:
    """Sentences such as "play some soft rock in berlin" with their BIO tags."""
    generator = random.Random(seed)
    sentences = []
    for _ in range(count):
        words = [(generator.choice(_VERBS), "O"), *[("some", "O")] * generator.randint(0, 2)]
        for text, kind in ((generator.choice(_KINDS), "kind"), (generator.choice(_PLACES), "place")):
            words += [(word, f"{'I' if place else 'B'}-{kind}") for place, word in enumerate(text.split())]
            words += [("in", "O")] if kind == "kind" else []
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    return "\n".join(sentences)


@pytest.fixture(scope="session")
def tagging_artifact(tmp_path_factory) -> Path:
    """An artifact that labels words, carried all the way from a CoNLL file. Read only."""
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "tags.toml").write_text(TAGS)
    (folder / "music.conll").write_text(conll_rows(400, seed=0))
    train(folder / "tags.toml", folder / "run", data={"train": (str(folder / "music.conll"),)}, show=False)
    export(folder / "run", show=False)
    assert verify(folder / "run", QUICK, show=False).passed
    return package(folder / "run", "1.0.0", folder / "artifacts").folder


@pytest.fixture
def broken(tmp_path, artifact) -> Path:
    """A copy of the artifact that a test may break."""
    return Path(shutil.copytree(artifact, tmp_path / "broken"))
