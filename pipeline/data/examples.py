"""Splits as a model reads them: token ids and targets in flat arrays, so that millions of rows fit into memory.

Memory: 4 bytes a token, and 8 bytes a target of a row or 4 a target of a token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from export.contract import NO_ANSWER, PAD_ID
from export.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]

# Texts that are encoded between two growths of the flat array.
_CHUNK = 10_000


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A split: the ids of all rows one after another, `starts` (rows + 1,) where each row begins, and the targets.

    Targets are label indices: (rows,), or, for a task that labels tokens, one for each id, NO_ANSWER where none is
    asked. `truncated` counts the rows that the length limit cut.
    """

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64] | npt.NDArray[np.int32]
    per_token: bool
    truncated: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of ids of each row, (rows,)."""
        lengths: npt.NDArray[np.int64] = np.diff(self.starts)
        return lengths

    def row(self, row: int) -> npt.NDArray[np.int32]:
        """Return the ids of a row."""
        return self.ids[self.starts[row] : self.starts[row + 1]]

    def batch(self, rows: Sequence[int]) -> tuple[Ids, Ids, Ids]:
        """Return input_ids (B, T), attention_mask (B, T) and targets, (B,) or (B, T), of some rows, all int64."""
        lengths = self.lengths[rows]
        shape = len(rows), int(lengths.max())
        attention_mask = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
        spans = [slice(self.starts[row], self.starts[row + 1]) for row in rows]
        input_ids = np.full(shape, PAD_ID, np.int64)
        input_ids[attention_mask == 1] = np.concatenate([self.ids[span] for span in spans])
        if not self.per_token:
            return input_ids, attention_mask, self.targets[list(rows)].astype(np.int64)
        targets = np.full(shape, NO_ANSWER, np.int64)
        targets[attention_mask == 1] = np.concatenate([self.targets[span] for span in spans])
        return input_ids, attention_mask, targets


def encode_texts(
    tokenizer: Tokenizer, texts: Iterable[str], targets: npt.NDArray[np.int64], *, progress: str | None = None
) -> Examples:
    """Encode texts that have one target each; `progress` names a bar, None shows none."""
    chunks, lengths, truncated = [], [], 0
    stream = iter(tqdm(texts, total=len(targets), desc=progress, leave=False, disable=None if progress else True))
    while part := list(islice(stream, _CHUNK)):
        encodings = tokenizer.encode_batch(part)
        chunks.append(np.concatenate([np.asarray(encoding.ids, np.int32) for encoding in encodings]))
        lengths.append(np.array([len(encoding.ids) for encoding in encodings]))
        truncated += sum(encoding.dropped > 0 for encoding in encodings)
    assert sum(map(len, lengths)) == len(targets)
    return Examples(
        ids=_joined(chunks, np.int32), starts=_starts(lengths), targets=targets, per_token=False, truncated=truncated
    )


def encode_sentences(
    tokenizer: Tokenizer,
    sentences: Iterable[Sequence[str]],
    targets: Iterable[npt.NDArray[np.int64]],
    *,
    progress: str | None = None,
) -> Examples:
    """Encode sentences, each a sequence of words with one target a word; the target stands at a word's first piece."""
    chunks, target_chunks, lengths, truncated = [], [], [], 0
    rows = zip(sentences, targets, strict=True)
    for words, labels in tqdm(rows, desc=progress, leave=False, disable=None if progress else True):
        encoding = tokenizer.encode_words(" ".join(words))
        assert len(encoding.words) == len(labels), "a word holds white space"
        own = np.full(len(encoding.ids), NO_ANSWER, np.int32)
        own[encoding.firsts] = labels[: len(encoding.firsts)]
        chunks.append(np.asarray(encoding.ids, np.int32))
        target_chunks.append(own)
        lengths.append(np.array([len(encoding.ids)]))
        truncated += encoding.dropped > 0
    return Examples(
        ids=_joined(chunks, np.int32),
        starts=_starts(lengths),
        targets=_joined(target_chunks, np.int32),
        per_token=True,
        truncated=truncated,
    )


def _joined(chunks: list[npt.NDArray[np.int32]], kind: type[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate(chunks) if chunks else np.empty(0, kind)


def _starts(lengths: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths or [np.empty(0, np.int64)]))])
