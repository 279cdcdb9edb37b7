"""How large an artifact and each of its files may be, whether in a folder or in a tar."""

# No self-contained ONNX file is larger (Protocol Buffers' limit), and what is judged is held in memory.
MAX_SIZE = 2 * 2**30
# Only model files grow with the model. Parsed JSON takes ten times its size, and the largest file of JSON, the
# tokenizer of a quarter of a million pieces, has 20 MiB.
MAX_OTHER_SIZE = 64 * 2**20
_MODEL_PREFIX = "model"


def limit_of(name: str, max_size: int) -> int:
    """Return how many bytes a file may have, where all together may have `max_size`."""
    return max_size if name.startswith(_MODEL_PREFIX) else min(max_size, MAX_OTHER_SIZE)


def size_problems(name: str, size: int, max_size: int) -> list[str]:
    """Return what is wrong with a file's size in bytes: nothing, or one sentence."""
    limit = limit_of(name, max_size)
    if 0 <= size <= limit:
        return []
    return [f"{shown(name)} has more than the {limit:,} bytes that such a file may have."]


def too_large(max_size: int) -> str:
    """Say that all files together have more than `max_size` bytes."""
    return f"it holds more than {max_size:,} bytes. If it is to be that large, allow it with --max-size."


def shown(name: str) -> str:
    """Write a name so that it can't steer a terminal."""
    return name if name.isascii() and name.isprintable() else ascii(name)
