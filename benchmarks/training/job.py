"""What every training of a comparison is given: one folder with the rows, the tokenizer and the settings.

Imports numpy alone, for the peer's environment has no Ferry.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROWS_FILE = "rows.npz"
SETTINGS_FILE = "settings.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes of the model and of the training.

    `budget` is what the rows hold in real tokens; `rows_per_batch` gives as many tokens a step as `batch_tokens` does.
    """

    vocab_size: int
    num_labels: int
    max_len: int
    dim: int = 384
    num_layers: int = 6
    num_heads: int = 12
    hidden_dim: int = 1536
    dropout: float = 0.1
    batch_tokens: int = 1024
    rows_per_batch: int
    budget: int
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    warmup_steps: int = 50
    clip_norm: float = 1.0
    seed: int = 0
    threads: int = 2
    segment_tokens: int


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A split: the ids of all rows one after another, where each begins (rows + 1,), and a label for each."""

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]

    def __iter__(self) -> Iterator[npt.NDArray[np.int32]]:
        return (self.ids[start:end] for start, end in zip(self.starts[:-1], self.starts[1:], strict=True))


def write_job(folder: Path, settings: Settings, train: Rows, validation: Rows) -> None:
    """Write what `read_job` reads."""
    (folder / SETTINGS_FILE).write_text(json.dumps(asdict(settings)))
    splits = {"train": train, "validation": validation}
    arrays = {f"{split}_{name}": array for split, rows in splits.items() for name, array in vars(rows).items()}
    np.savez(folder / ROWS_FILE, **arrays)


def read_job(folder: Path) -> tuple[Settings, Rows, Rows]:
    """Read the settings, the rows to train on and those to validate on."""
    settings = Settings(**json.loads((folder / SETTINGS_FILE).read_text()))
    with np.load(folder / ROWS_FILE) as arrays:
        train, validation = (
            Rows(**{name: arrays[f"{split}_{name}"] for name in ("ids", "starts", "targets")})
            for split in ("train", "validation")
        )
    return settings, train, validation


def choose_rows(lengths: Sequence[int], budget: int, *, seed: int) -> list[int]:
    """Choose rows at random until they hold `budget` tokens, or all; in their own order.

    Args:
        lengths: the real tokens of every row.
        budget: the real tokens wanted; the last row chosen may go beyond it.
        seed: of the choice.
    """
    order = np.random.default_rng(seed).permutation(len(lengths))
    before = np.concatenate([[0], np.cumsum(np.asarray(lengths)[order])[:-1]])
    return sorted(int(row) for row in order[before < budget])
