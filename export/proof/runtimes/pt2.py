"""The .pt2 file as a backend: the graph that torch.export wrote, run by PyTorch operator by operator."""

from weakref import WeakValueDictionary

from torch.export import ExportedProgram

from export.proof.runtimes.base import BackendError, Read, Runtime
from export.proof.runtimes.torch_runtime import TorchRuntime
from export.pt2 import PT2_FILE, module_of, read_pt2

PT2 = "pt2"

# By the bytes of the file. Reading takes seconds, and a proof reads the same file for its checks and to run it.
_programs: WeakValueDictionary[bytes, ExportedProgram] = WeakValueDictionary()


def shared_program(data: bytes) -> ExportedProgram:
    """Read the program of a .pt2 file once for all who hold it at a time, none of whom may change it.

    Raises:
        ValueError: if the bytes are damaged or not of Ferry's making.
    """
    program = _programs.get(data)
    if program is None:
        program, _ = read_pt2(data)
        _programs[data] = program
    return program


def load_exported(read: Read) -> Runtime:
    """Load the file.

    Raises:
        BackendError: if it is damaged.
    """
    try:
        return TorchRuntime(PT2, module_of(shared_program(read(PT2_FILE))))
    except ValueError as error:
        raise BackendError(str(error)) from error
