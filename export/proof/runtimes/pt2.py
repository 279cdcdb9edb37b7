"""The .pt2 file as a backend: the graph that torch.export wrote, run by PyTorch operator by operator."""

from export.proof.runtimes.base import BackendError, Read, Runtime
from export.proof.runtimes.torch_runtime import TorchRuntime
from export.pt2 import PT2_FILE, load_pt2

PT2 = "pt2"


def load_exported(read: Read) -> Runtime:
    """Load the file.

    Raises:
        BackendError: if it is damaged.
    """
    try:
        module, _ = load_pt2(read(PT2_FILE))
    except ValueError as error:
        raise BackendError(str(error)) from error
    return TorchRuntime(PT2, module)
