"""What answers for a model, as every backend is seen from outside: `Runtime`, and `Backend`, a row of the table."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from export.errors import FerryError
from export.proof.placement import Placement
from export.proof.precision import FLOAT32

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Read = Callable[[str], bytes]

# One thread on every backend: sums come in one order, so the record of a proof does not depend on the machine's cores,
# and two libraries' pools do not wait for each other (that made the grid ten times slower).
THREADS = 1


class BackendError(FerryError):
    """A backend could not load its file or could not run an input."""


class Runtime(ABC):
    """A loaded model. Callers check the inputs against the contract first, as a loader does.

    `precision` is a key of PRECISIONS; `longest` the longest sequence that it is asked, None for the model's own;
    `grid_only` leaves the test split and the invariances to faster ones; `placement` says where the nodes ran, None for
    what has no providers.
    """

    name: str
    precision: str = FLOAT32
    longest: int | None = None
    grid_only: bool = False
    placement: Placement | None = None

    def wait(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait until what is loaded beside this process is loaded.

        Raises:
            BackendError: if it can't be.
        """

    @abstractmethod
    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """Return the logits, (batch, labels) or (batch, sequence, labels), for ids and mask (batch, sequence) int64.

        Raises:
            BackendError: if the backend fails.
        """


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One row of the table: a name, the provider it needs (a key of PROVIDERS), the model file that it is judged by.

    `file` is None for what needs none but the checkpoint; `load` loads from the files by name; `compiled` tells that
    loading needs a C++ compiler, see `missing_for_aot`.
    """

    name: str
    provider: str
    file: str | None
    load: Callable[[Read], Runtime]
    compiled: bool = False


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run the block's torch operators on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def last_line(error: BaseException) -> str:
    """Return the line that says what happened: TorchScript puts it last, under a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
