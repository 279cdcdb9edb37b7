"""The example that exporters see: synthetic ids of a shape that can't be mistaken for anything else.

Batch and length are primes that are no number of the model (width, heads, labels, …) and no shape of verification's
grid, so wherever one of them stands in an exported file, a size was frozen. Verification chooses them again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from export.contract import Limits
from export.proof.cases import BATCHES, sequence_lengths

# Above the codes that number formats have in files (torch.bool is 11); below, only where max_length leaves no other.
_ABOVE_CODES = 44
_BELOW = 100
_PRIMES = [number for number in range(5, _BELOW) if all(number % factor for factor in range(2, number))]


@dataclass(frozen=True)
class Example:
    """The example's shape; `telling` are the sizes that stand for nothing else; a short length does not tell."""

    batch: int
    length: int
    telling: frozenset[int]

    def inputs(self, limits: Limits) -> tuple[Tensor, Tensor]:
        """Build ids and mask, (batch, length) int64: ids in a row, and a row with padding, as both are to be seen."""
        input_ids = torch.arange(self.batch * self.length).reshape(self.batch, self.length) % limits.vocab_size
        attention_mask = torch.ones_like(input_ids)
        attention_mask[0, self.length // 2 + 1 :] = 0
        return input_ids, attention_mask


def choose_example(model: nn.Module, limits: Limits) -> Example:
    """Choose the shape of the example for a model; it depends on the model's shapes only, not on its weights."""
    taken = {*model_numbers(model), *BATCHES, *sequence_lengths(limits.max_length), limits.vocab_size}
    free = [prime for prime in _PRIMES if prime not in taken]
    free.sort(key=lambda prime: (prime < _ABOVE_CODES, abs(prime - _ABOVE_CODES)))
    batch, rest = free[0], free[1:]
    for length in rest:
        if length <= limits.max_length and batch * length not in taken:
            # A short model has no room for a length that is no format's code: it is seen by the grid alone.
            telling = {batch, batch * length} | ({length} if length > _ABOVE_CODES else set())
            return Example(batch, length, frozenset(telling))
    return Example(batch, limits.max_length, frozenset({batch}))


def model_numbers(model: nn.Module) -> set[int]:
    """Return every whole number that a model is made with: sizes of its tensors, heads, width of a head."""
    numbers = {size for tensor in (*model.parameters(), *model.buffers()) for size in tensor.shape}
    numbers.update(_whole_numbers(model))
    heads = [count for module in model.modules() if isinstance(count := getattr(module, "num_heads", None), int)]
    return numbers | {number // count for number in numbers for count in heads if count and number % count == 0}


def _whole_numbers(model: nn.Module) -> Iterator[int]:
    for module in model.modules():
        for value in vars(module).values():
            if type(value) is int:
                yield value
        if isinstance(module, nn.ModuleList):
            yield len(module)
