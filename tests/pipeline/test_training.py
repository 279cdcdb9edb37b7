import dataclasses
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from models.config import EncoderConfig
from models.heads import TextClassifier
from pipeline.checkpoint import Checkpoint
from pipeline.config import TrainingConfig
from pipeline.data.dataset import Split
from pipeline.data.examples import Examples
from pipeline.evaluation import predict
from pipeline.tasks import TASKS
from pipeline.training import DivergedError, drop_tokens, fit, guard, parameter_groups

ENCODER = EncoderConfig(vocab_size=20, max_len=12, dim=16, num_layers=1, num_heads=2, hidden_dim=32, dropout=0.1)
CONFIG = TrainingConfig(epochs=4, batch_tokens=64, warmup_steps=4, learning_rate=3e-3, threads=1, patience=4)


def made_examples(rows, seed):
    """Texts whose label is whether token 7 is among their tokens."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 2, rows)
    rows_of_ids = []
    for target in targets:
        ids = generator.integers(8, 20, generator.integers(3, 12))
        if target:
            ids[generator.integers(0, len(ids))] = 7
        rows_of_ids.append(ids)
    starts = np.cumsum([0, *map(len, rows_of_ids)])
    ids = np.concatenate(rows_of_ids).astype(np.int32)
    return Examples(ids=ids, starts=starts, targets=targets, per_token=False, truncated=0)


def made_model():
    torch.manual_seed(0)
    return TextClassifier(ENCODER, pooling="mean_max", num_labels=2)


def made_task(label_smoothing=0.0, class_weights=None):
    return TASKS["text-classification"](
        labels=["no", "yes"], label_smoothing=label_smoothing, class_weights=class_weights
    )


def run_fit(folder, config=CONFIG, model=None, validation=None):
    task = made_task(label_smoothing=config.label_smoothing)
    validation = validation or made_examples(60, 1)
    return fit(
        model or made_model(),
        task,
        made_examples(240, 0),
        lambda model: task.score(
            predict(model, validation, batch_tokens=64), Split([], validation.targets), validation
        ),
        config,
        weights_file=folder / "model.safetensors",
        log_folder=folder / "log",
        checkpoint=Checkpoint(folder / "checkpoint", identity={}, every=config.checkpoint_steps, command="again"),
        show=False,
    )


def test_learns_what_can_be_learned(tmp_path):
    fitted = run_fit(tmp_path)
    assert fitted.validation["accuracy"] > 0.9
    model = made_model()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    examples = made_examples(200, 2)
    assert (predict(model, examples, batch_tokens=64) == examples.targets).mean() > 0.9


def test_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_fit(tmp_path / name)
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert a == b


def test_best_epoch_is_kept_and_training_stops_early(tmp_path):
    # Targets that nothing can predict: the first epoch stays the best sooner or later.
    validation = made_examples(10, 3)
    validation = dataclasses.replace(validation, targets=np.zeros(10, dtype=np.int64))
    config = TrainingConfig(epochs=30, patience=2, batch_tokens=64, warmup_steps=0, learning_rate=1e-2, threads=1)
    fitted = run_fit(tmp_path, config, validation=validation)
    assert fitted.epochs == fitted.best_epoch + 1 + 2
    model = made_model()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    accuracy = (predict(model, validation, batch_tokens=64) == 0).mean()
    assert accuracy == fitted.validation["accuracy"]


def test_scalars_are_written(tmp_path):
    run_fit(tmp_path)
    events = EventAccumulator(str(tmp_path / "log"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {
        "train/loss",
        "train/learning_rate",
        "train/gradient_norm",
        "gradient_norm/encoder.blocks.0.attention.qkv",
        "speed/tokens_per_second",
        "speed/peak_memory_mib",
        "validation/accuracy",
    } <= tags
    rates = [event.value for event in events.Scalars("train/learning_rate")]
    assert rates[0] == pytest.approx(CONFIG.learning_rate / 4)
    assert len(events.Scalars("validation/accuracy")) == 4


def test_guard_names_the_first_bad_parameter():
    model = made_model()
    model(torch.tensor([[7, 8]]), torch.tensor([[1, 1]])).sum().backward()
    guard(model, step=0, loss=1.0, norm=1.0)
    names = [name for name, _ in model.named_parameters()]
    dict(model.named_parameters())[names[4]].grad.fill_(math.nan)
    dict(model.named_parameters())[names[6]].grad.fill_(math.inf)
    with pytest.raises(DivergedError, match=f"step 3: the gradient of {names[4]} is not finite"):
        guard(model, step=3, loss=1.0, norm=math.nan)
    with torch.no_grad():
        dict(model.named_parameters())[names[5]].fill_(math.nan)
    with pytest.raises(DivergedError, match=f"the value of {names[5]} is not finite"):
        guard(model, step=3, loss=math.nan, norm=1.0)


def test_training_that_diverges_stops(tmp_path):
    model = made_model()
    with torch.no_grad():
        model.head[1].bias[0] = math.inf
    with pytest.raises(DivergedError, match=r"the value of head\.1\.bias"):
        run_fit(tmp_path, model=model)
    assert not (tmp_path / "model.safetensors").exists()


def test_matrices_decay_and_vectors_do_not():
    decaying, free = parameter_groups(made_model(), 0.01)
    assert decaying["weight_decay"] == 0.01
    assert free["weight_decay"] == 0.0
    assert all(parameter.dim() == 2 for parameter in decaying["params"])
    assert all(parameter.dim() == 1 for parameter in free["params"])


def test_rows_to_ignore_have_no_loss():
    task = made_task()
    logits = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    kept = task.loss(logits[:1], torch.tensor([0]))
    assert task.loss(logits, torch.tensor([0, -100])) == kept
    assert float(kept) == pytest.approx(math.log(1 + math.exp(-2)))


def test_label_smoothing_is_that_of_the_paper():
    task = made_task(label_smoothing=0.2)
    log_p = torch.log_softmax(torch.tensor([[2.0, 0.0]]), dim=1)[0]
    wanted = -(0.9 * log_p[0] + 0.1 * log_p[1])
    torch.testing.assert_close(task.loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])), wanted)


def test_class_weights_weigh_the_loss():
    logits, targets = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    losses = [float(made_task().loss(logits[row : row + 1], targets[row : row + 1])) for row in (0, 1)]
    weighted = made_task(class_weights=torch.tensor([1.0, 3.0])).loss(logits, targets)
    assert float(weighted) == pytest.approx((losses[0] + 3 * losses[1]) / 4)


def test_token_dropout_masks_pieces_and_nothing_reserved():
    torch.manual_seed(0)
    ids = torch.cat([torch.tensor([[2]]), torch.arange(5, 2005)[None], torch.tensor([[3, 0, 0]])], dim=1)
    dropped = drop_tokens(ids, 0.2)
    changed = dropped != ids
    assert set(dropped[changed].tolist()) == {4}
    assert not changed[ids < 5].any()
    # 2,000 draws of 0.2 lie within five standard deviations of 400.
    assert 310 < changed.sum() < 490
    state = torch.get_rng_state()
    assert drop_tokens(ids, 0.0) is ids
    assert torch.equal(torch.get_rng_state(), state)
