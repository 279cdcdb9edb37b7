"""The comparison of trainings: what counts as a token, who is compared with whom, and that the turns are turns."""

import itertools
import json
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from benchmarks.report import report
from benchmarks.training.__main__ import describe as describe_part
from benchmarks.training.__main__ import main
from benchmarks.training.arms import Arm, Training, Worker, WorkerError, ferry_arm, take_turns
from benchmarks.training.ferry_worker import describe, training_config, validate_loss
from benchmarks.training.figures import median_with_interval, paired_ratios, smooth, tokens_per_second
from benchmarks.training.job import Rows, Settings, choose_rows, read_job, write_job
from benchmarks.training.measure import conclude
from benchmarks.training.metronome import Metronome
from benchmarks.training.picture import draw_curves
from export.model import build_model
from pipeline.data.examples import Examples

SETTINGS = Settings(
    vocab_size=20,
    num_labels=3,
    max_len=12,
    dim=8,
    num_layers=1,
    num_heads=2,
    hidden_dim=16,
    batch_tokens=32,
    rows_per_batch=4,
    budget=0,
    threads=1,
    warmup_steps=2,
    segment_tokens=60,
)


class Masked(nn.Module):
    """Takes what a model takes."""

    def forward(self, input_ids, attention_mask):
        return input_ids


def made_rows(count):
    generator = np.random.default_rng(count)
    lengths = generator.integers(3, 12, count)
    return Rows(
        ids=generator.integers(5, 20, lengths.sum()).astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        targets=generator.integers(0, 3, count),
    )


def examples(rows):
    return Examples(ids=rows.ids, starts=rows.starts, targets=rows.targets, per_token=False, truncated=0)


def test_only_real_tokens_of_training_steps_count_and_segments_are_whole_steps():
    events, now = [], itertools.count(step=10)
    model = Masked()
    metronome = Metronome(
        model,
        segment_tokens=5,
        wait=lambda: events.append("wait"),
        tell=events.append,
        clock=lambda: float(next(now)),
    )
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    for loss in (0.5, 0.4, 0.3):
        model.train()
        # By name as Hugging Face does, by place as Ferry does.
        model(torch.zeros_like(mask), attention_mask=mask) if loss == 0.4 else model(torch.zeros_like(mask), mask)
        metronome.hear(loss)
        model.eval()
        model(torch.zeros_like(mask), mask)
    metronome.finish()
    model.train()
    model(torch.zeros_like(mask), mask)
    assert events == [
        "wait",
        {"tokens": 6, "seconds": 10.0, "losses": [(3, 0.5), (6, 0.4)], "last": False},
        "wait",
        {"tokens": 3, "seconds": 10.0, "losses": [(9, 0.3)], "last": True},
    ]


def test_rows_are_chosen_until_they_hold_the_budget():
    lengths = [5, 9, 3, 7, 4, 8, 6, 2]
    chosen = choose_rows(lengths, 20, seed=1)
    held = sum(lengths[row] for row in chosen)
    assert 20 <= held < 20 + max(lengths)
    assert chosen == sorted(set(chosen))
    assert chosen != choose_rows(lengths, 20, seed=2)
    assert choose_rows(lengths, 1000, seed=1) == list(range(8))


def test_a_job_comes_back_as_it_was_written(tmp_path):
    train, validation = made_rows(7), made_rows(3)
    write_job(tmp_path, SETTINGS, train, validation)
    settings, *splits = read_job(tmp_path)
    assert settings == SETTINGS
    for read, written in zip(splits, (train, validation), strict=True):
        for name, array in vars(written).items():
            np.testing.assert_array_equal(getattr(read, name), array)
    assert [len(row) for row in splits[0]] == np.diff(train.starts).tolist()


def test_ratios_are_of_one_round_per_token_and_without_the_warm_up():
    ours = Training(tokens=[10, 10, 20], seconds=[99.0, 1.0, 4.0])
    theirs = Training(tokens=[10, 20, 10, 5], seconds=[1.0, 4.0, 6.0, 50.0])
    # 0.2 / 0.1 and 0.6 / 0.2 seconds a token; the fourth round has no pair.
    assert paired_ratios(ours, theirs) == pytest.approx([2.0, 3.0])
    assert tokens_per_second(ours) == pytest.approx(30 / 5)


def test_the_interval_is_that_of_the_median():
    assert median_with_interval([2.0] * 5) == {"median": 2.0, "low": 2.0, "high": 2.0}
    values = np.random.default_rng(0).normal(1.5, 0.1, 100).tolist()
    interval = median_with_interval(values)
    assert interval["median"] == pytest.approx(np.median(values), abs=1e-4)
    # The median of n normal values has the standard error √(π/2) σ/√n = 0.0125; 1.96 of them, within a third.
    assert interval["high"] - interval["low"] == pytest.approx(2 * 1.96 * 0.0125, rel=0.35)
    assert interval == median_with_interval(values)
    with pytest.raises(ValueError, match="no pair of segments"):
        median_with_interval([])


def test_curves_are_means_over_stretches_of_tokens():
    losses = [(10, 4.0), (40, 2.0), (50, 1.0), (100, 3.0)]
    # Up to 50 tokens: 10 at 4, 30 at 2, 10 at 1.
    assert smooth(losses, points=2) == [(50, 2.2), (100, 3.0)]
    assert smooth(losses, points=1) == [(100, pytest.approx((40 + 60 + 10 + 150) / 100))]
    # A stretch in which no step ends has no point.
    assert [tokens for tokens, _ in smooth(losses, points=10)] == [10, 40, 50, 100]


def told(speed):
    """A training of three segments at so many tokens a second."""
    return Training(
        tokens=[100] * 3,
        seconds=[100 / speed] * 3,
        losses=[(100, 3.0), (200, 2.0), (300, 1.0)],
        result={"parameters": 5, "versions": {}, "validation": {"loss": 1.5, "accuracy": 0.5}},
    )


def made_arms():
    return [Arm(name=name, peer=name > "m", command=lambda _: []) for name in ("a", "b", "x", "y")]


def test_the_fastest_of_ours_meets_the_fastest_peer():
    measured = conclude(made_arms(), {"a": told(20), "b": told(60), "x": told(30), "y": told(10)})
    assert measured["ratio"] == {"median": 2.0, "low": 2.0, "high": 2.0, "ours": "b", "peer": "x"}
    assert [(ratio["ours"], ratio["peer"], ratio["median"]) for ratio in measured["ratios"]] == [
        ("a", "x", 0.6667),
        ("a", "y", 2.0),
        ("b", "x", 2.0),
        ("b", "y", 6.0),
    ]
    assert [training["tokens_per_second"] for training in measured["trainings"]] == [20, 60, 30, 10]
    assert measured["trainings"][0]["curve"] == [(100, 3.0), (200, 2.0), (300, 1.0)]


def test_the_picture_is_drawn():
    measured = conclude(made_arms(), {"a": told(20), "b": told(60), "x": told(30), "y": told(10)})
    data = draw_curves(measured)
    assert data.startswith(b"\x89PNG")
    assert data == draw_curves(measured)


def test_the_report_takes_the_part_with_its_ratio_and_tables(tmp_path):
    measured = conclude(made_arms(), {"a": told(20), "b": told(60), "x": told(30), "y": told(10)})
    files = {file.name for file in report([describe_part(measured)], tmp_path)}
    assert files == {"cpu.json", "cpu.md", "cpu-training.png"}
    assert json.loads((tmp_path / "cpu.json").read_text())["ratios"]["training_tokens"]["median"] == 2.0
    tables = (tmp_path / "cpu.md").read_text()
    assert "| b | 60 | 1.500 | 50.0 |" in tables
    assert "| b | x | 2.00 | 2.00 … 2.00 |" in tables


def test_trainings_work_in_turns_and_see_the_same_tokens(tmp_path):
    train = made_rows(40)
    write_job(tmp_path, SETTINGS, train, made_rows(10))
    names, turns = ("float32", "bfloat16"), []

    class Noted(Worker):
        def go(self):
            turns.append(self)
            super().go()

    arms = [ferry_arm(precision) for precision in names]
    with (
        Noted(arms[0].command(tmp_path), threads=1, log=tmp_path / "0.log") as first,
        Noted(arms[1].command(tmp_path), threads=1, log=tmp_path / "1.log") as second,
    ):
        trainings = take_turns({"first": first, "second": second}, show=lambda _: None)
    rounds = len(trainings["first"].tokens)
    assert rounds > 3
    # The order rotates by one a round; at last each tells its result.
    assert turns == [*([first, second, second, first] * rounds)[: 2 * rounds], first, second]
    for training in trainings.values():
        assert sum(training.tokens) == len(train.ids) == training.losses[-1][0]
        assert all(tokens >= SETTINGS.segment_tokens for tokens in training.tokens[:-1])
        assert np.isfinite([loss for _, loss in training.losses]).all()
        assert training.result["validation"]["loss"] > 0
    assert trainings["first"].losses != trainings["second"].losses


def test_a_training_that_ends_early_is_told_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with (
        pytest.raises(WorkerError, match=r"ended early \(exit code 1\):\nno such thing"),
        Worker(command, threads=1, log=tmp_path / "log") as worker,
    ):
        worker.until_ready()


def test_both_sides_have_the_same_settings():
    config = training_config(SETTINGS, "bfloat16")
    assert (config.epochs, config.precision, config.batch_tokens) == (1, "bfloat16", 32)
    assert (config.learning_rate, config.weight_decay, config.clip_norm) == (3e-4, 0.01, 1.0)
    assert (config.label_smoothing, config.token_dropout) == (0.0, 0.0)
    encoder = describe(SETTINGS)["encoder"]
    assert (encoder["norm"], encoder["dim"], encoder["num_layers"], encoder["dropout"]) == ("post", 8, 1, 0.1)


def test_validation_loss_is_the_mean_over_rows():
    torch.manual_seed(0)
    model, rows = build_model(describe(SETTINGS)).eval(), made_rows(10)
    result = validate_loss(model, examples(rows), batch_tokens=32)
    losses, hits = [], 0
    for ids, target in zip(rows, rows.targets, strict=True):
        logits = model(torch.from_numpy(ids)[None].long(), torch.ones(1, len(ids), dtype=torch.long))
        losses.append(nn.functional.cross_entropy(logits, torch.tensor([target])).item())
        hits += int(logits.argmax()) == target
    assert result["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert result["accuracy"] == hits / 10


def test_without_the_peers_environment_the_next_step_is_told(tmp_path):
    result = CliRunner().invoke(main, ["--peers", str(tmp_path / "python")])
    assert result.exit_code == 2
    assert result.output == (f"training: the peers' environment has no {tmp_path / 'python'}. `make bench` makes it.\n")
