"""A tagger that has learned something, from generated copyright notices: its answers depend on the words around."""

import random
from pathlib import Path

from pipeline.export import export
from pipeline.package import package
from pipeline.train import train
from pipeline.verify import verify
from tests.questions import QUICK

CONFIG = """
name = "notices"
[data]
name = "notices"
train = ["notices.conll"]
[tokenizer]
vocab_size = 340
[model]
max_len = 24
dim = 32
num_layers = 1
num_heads = 2
hidden_dim = 64
attention = "sdpa"
position = "learned"
[training]
threads = 1
epochs = 8
batch_tokens = 2048
learning_rate = 3e-3
warmup_steps = 20
[package]
golden_texts = ["Copyright (c) 2024 Jane Doe all rights reserved"]
"""
FIRST_NAMES = ("Jane", "John", "Ana", "Ola", "Wei")
LAST_NAMES = ("Doe", "Smith", "Li", "Núñez", "O'Neill")
OTHER_WORDS = ("all", "rights", "reserved", "under", "the", "licence", "of", "MIT")


def train_tagger(folder: Path) -> Path:
    """Train, export, verify and package; return the artifact."""
    generator = random.Random(5)
    (folder / "notices.conll").write_text("\n".join(make_notice(generator) for _ in range(600)), "utf-8")
    (folder / "config.toml").write_text(CONFIG, "utf-8")
    train(folder / "config.toml", folder / "run", show=False)
    export(folder / "run", show=False)
    assert verify(folder / "run", QUICK, show=False).passed
    return package(folder / "run", "1.0.0", folder / "artifacts").folder


def make_notice(generator: random.Random) -> str:
    """Make a sentence in CoNLL's form: a word, a tab and its tag a line."""
    year = str(generator.randint(1980, 2026))
    owner = [(generator.choice(FIRST_NAMES), "B-NAME"), (generator.choice(LAST_NAMES), "I-NAME")]
    notice = [("Copyright", "O"), ("(c)", "O"), (year, "B-YEAR"), *owner]
    others = [(word, "O") for word in generator.choices(OTHER_WORDS, k=generator.randint(0, 9))]
    words = generator.choice((notice + others, others + notice))
    return "".join(f"{word}\t{tag}\n" for word, tag in words)
