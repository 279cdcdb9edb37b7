"""The comparison itself: the default data's rows, the trainings in turns, and what came of them as one dictionary."""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.arms import Arm, Training, Worker, ferry_arm, huggingface_arm, take_turns
from benchmarks.training.figures import median_with_interval, paired_ratios, smooth, tokens_per_second
from benchmarks.training.job import Rows, Settings, choose_rows, write_job
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_JSON_FILE
from export.files import dump_json
from export.tokenizer import Tokenizer, huggingface_tokenizer, huggingface_tokenizer_config, train_tokenizer
from pipeline.config import DEFAULT_CONFIG, load_config
from pipeline.data.batching import length_buckets
from pipeline.data.examples import Examples
from pipeline.data.own import open_data
from pipeline.tasks import TASKS

# Real tokens that each training sees, that it sees in one turn, and of the rows that it is validated on.
BUDGET, SEGMENT, HELD_OUT = 120_000, 6_000, 30_000
# What takes a minute.
QUICK: dict[str, Any] = {
    "budget": 24_000,
    "segment_tokens": 4_000,
    "held_out_tokens": 4_000,
    "dim": 128,
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 512,
}
CURVE_POINTS = 40


def measure(
    peer_python: Path,
    *,
    budget: int = BUDGET,
    segment_tokens: int = SEGMENT,
    held_out_tokens: int = HELD_OUT,
    threads: int = 2,
    show: bool = True,
    **sizes: Any,
) -> dict[str, Any]:
    """Train the same rows with Ferry and with Hugging Face's Trainer, in turns.

    Args:
        peer_python: the interpreter of the environment that has transformers, accelerate and this torch.
        budget: real tokens that each training sees, once each.
        segment_tokens: real tokens of one turn.
        held_out_tokens: real tokens of the validation rows.
        threads: torch's threads.
        show: whether rounds are counted on standard error.
        sizes: other fields of `Settings`.

    Returns:
        `settings`, `trainings` (a dictionary each: name, peer, tokens per second, curve, validation, …), `ratios` of
        every pair, and `ratio`: the fastest of ours against the fastest peer, {median, low, high, ours, peer}.

    Raises:
        ValueError: if the peer's environment is not there, or there are too few tokens for two segments.
        WorkerError: if a training ends early.
    """
    if not peer_python.is_file():
        raise ValueError(f"the peers' environment has no {peer_python}. `make bench` makes it.")
    arms = [
        ferry_arm("float32"),
        ferry_arm("bfloat16"),
        huggingface_arm(peer_python, "random", "float32"),
        huggingface_arm(peer_python, "group_by_length", "float32"),
        huggingface_arm(peer_python, "group_by_length", "bfloat16"),
        # The fused kernel is slow in bfloat16 on the CPU; a careful user would try the other one.
        huggingface_arm(peer_python, "group_by_length", "bfloat16", attention="eager"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        settings = _prepare(
            folder,
            budget=budget,
            held_out_tokens=held_out_tokens,
            segment_tokens=segment_tokens,
            threads=threads,
            **sizes,
        )
        trainings = _run(arms, folder, settings, show=show)
    return {"settings": vars(settings), **conclude(arms, trainings)}


def conclude(arms: Sequence[Arm], trainings: dict[str, Training]) -> dict[str, Any]:
    """Compare the trainings of a run by tokens per second, and put their curves side by side."""
    ours, peers = ([arm.name for arm in arms if arm.peer is peer] for peer in (False, True))
    speeds = {name: tokens_per_second(training) for name, training in trainings.items()}
    ratios = [
        {
            **median_with_interval(paired_ratios(trainings[own], trainings[peer])),
            "ours": own,
            "peer": peer,
        }
        for own in ours
        for peer in peers
    ]
    fastest = max(ours, key=speeds.__getitem__), max(peers, key=speeds.__getitem__)
    return {
        "trainings": [
            {
                "name": arm.name,
                "peer": arm.peer,
                "tokens": sum(trainings[arm.name].tokens),
                "steps": len(trainings[arm.name].losses),
                "tokens_per_second": round(speeds[arm.name]),
                "parameters": trainings[arm.name].result["parameters"],
                "versions": trainings[arm.name].result["versions"],
                "validation": trainings[arm.name].result["validation"],
                "curve": smooth(trainings[arm.name].losses, points=CURVE_POINTS),
            }
            for arm in arms
        ],
        "ratios": ratios,
        "ratio": next(ratio for ratio in ratios if (ratio["ours"], ratio["peer"]) == fastest),
    }


def _run(arms: Sequence[Arm], folder: Path, settings: Settings, *, show: bool) -> dict[str, Training]:
    expected = -(-settings.budget // settings.segment_tokens)

    def told(rounds: int) -> None:
        if show:
            print(f"training: round {rounds} of about {expected}", file=sys.stderr)

    with ExitStack() as stack:
        workers = {
            arm.name: stack.enter_context(
                Worker(arm.command(folder), threads=settings.threads, log=folder / f"{number}.log")
            )
            for number, arm in enumerate(arms)
        }
        return take_turns(workers, show=told)


def _prepare(folder: Path, *, budget: int, held_out_tokens: int, **sizes: Any) -> Settings:
    """Write the job: the default data, tokenised by its own tokenizer, cut to the budget."""
    config = load_config(DEFAULT_CONFIG)
    dataset = open_data(config.data).load(folder, show=False)
    kind = TASKS[dataset.task]
    model = train_tokenizer(kind.corpus(dataset.train), vocab_size=config.tokenizer.vocab_size)
    max_len = config.model.max_len
    tokenizer = Tokenizer(model, max_length=max_len)
    (folder / TOKENIZER_JSON_FILE).write_text(huggingface_tokenizer(model, max_length=max_len))
    (folder / TOKENIZER_CONFIG_FILE).write_text(dump_json(huggingface_tokenizer_config(max_length=max_len)))
    train, held_out = (
        _cut(kind.encode(tokenizer, split), tokens)
        for split, tokens in ((dataset.train, budget), (dataset.validation, held_out_tokens))
    )
    lengths = np.diff(train.starts).tolist()
    batch_tokens = sizes.pop("batch_tokens", Settings.batch_tokens)
    steps = len(length_buckets(lengths, batch_tokens=batch_tokens, seed=0, epoch=0))
    settings = Settings(
        vocab_size=tokenizer.vocab_size,
        num_labels=len(dataset.labels),
        max_len=max_len,
        budget=sum(lengths),
        batch_tokens=batch_tokens,
        # As many steps, so as many tokens a step.
        rows_per_batch=max(1, round(len(lengths) / steps)),
        **sizes,
    )
    write_job(folder, settings, train, held_out)
    return settings


def _cut(examples: Examples, tokens: int) -> Rows:
    """Keep rows that were chosen at random, until they hold so many tokens."""
    chosen = choose_rows(examples.lengths.tolist(), tokens, seed=0)
    lengths = examples.lengths[chosen]
    return Rows(
        ids=np.concatenate([examples.ids[examples.starts[row] : examples.starts[row + 1]] for row in chosen]),
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        targets=np.asarray(examples.targets, np.int64)[chosen],
    )
