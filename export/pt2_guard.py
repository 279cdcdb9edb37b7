"""What a .pt2 archive may hold, read before torch reads it: a graph of ATen operators, raw tensors, the metadata.

torch's loader unpickles sample inputs, custom objects and unusual tensors; it looks up any operator of Python's that
the graph names, evaluates the expressions that sizes are written in, and runs the guards. A graph of ours needs none of
that freedom: its archive has no pickle, and each of its strings has one of the forms below.

What passes is still a program, which may ask for any amount of memory or time.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator

from export.contract import PT2_METADATA_FILE
from export.files import parse_json

# What torch.export.save names the records of an archive that holds one program.
ROOT = "archive/"
SAMPLE_INPUTS = f"{ROOT}data/sample_inputs/model.pt"
# What is no number: the graph, and how the bytes of weights and of tables are to be read.
PT2_DOCUMENTS = (
    f"{ROOT}models/model.json",
    f"{ROOT}data/weights/model_weights_config.json",
    f"{ROOT}data/constants/model_constants_config.json",
)
METADATA_RECORD = f"{ROOT}extra/{PT2_METADATA_FILE}"
# Which format it is, and how bytes are ordered.
PT2_FORMAT = ("archive_format", "archive_version", "byteorder", ".data/version")
_NEEDED = frozenset({SAMPLE_INPUTS, *PT2_DOCUMENTS, METADATA_RECORD, *(ROOT + name for name in PT2_FORMAT)})
_TENSOR = re.compile(ROOT + r"data/(weights/weight|constants/tensor)_\d+")

# `from_file` would open files of the graph's choice.
_OPERATOR = (
    r"torch\.ops\.aten\.(?!from_file)\w+\.\w+|_operator\.(add|sub|mul|floordiv|mod|neg|eq|ne|lt|le|gt|ge|getitem)"
)
# What sympy prints of a size: symbols, whole numbers, and functions of both.
_SIZE = (
    r"(\b(Symbol|Integer|positive|nonnegative|integer|True|False|[su]\d+|\d+"
    r"|Add|Mul|Pow|Min|Max|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|ModularIndexing|And|Or|Not"
    r"|Equality|Unequality|GreaterThan|LessThan|StrictGreaterThan|StrictLessThan)\b|[ '(),=-])*"
)
_AXIS = r"L\['\w+'\](\[\d+\])?\.size\(\)\[\d+\]"
_WORD = r"[\w.+-]*"
# The form of a string by the key that it stands under; the others are words.
_FORMS = {
    "target": _OPERATOR,
    "as_operator": _OPERATOR,
    "expr_str": _SIZE,
    # Which inputs have one size.
    "guards_code": rf"{_AXIS} (==|<=|>=) ({_AXIS}|\d+)",
    # Nested tuples and dictionaries, in JSON.
    "in_spec": r'([\[\]{}:, 0-9"]|null|type|context|children_spec|builtins\.(tuple|list|dict))*',
    "nn_module_stack": r"[\w.,;@$]*",
    # An operator's own: einsum's equation, what an assertion says.
    "as_string": r"[\w.,'<>= -]*",
}
_FORMS["out_spec"] = _FORMS["in_spec"]


def refuse_code(data: bytes) -> None:
    """Refuse an archive that holds anything else than one graph, its tensors and the metadata.

    Raises:
        ValueError: names what does not belong.
    """
    for key, value in _leaves(read_documents(data), ""):
        if key == "use_pickle" and value is not False:
            raise ValueError("it holds a pickled tensor")
        if isinstance(value, str) and not re.fullmatch(_FORMS.get(key, _WORD), value):
            raise ValueError(f"its graph would run what is no operator of ours: {key} {value[:80]!r}")


def read_documents(data: bytes) -> list[object]:
    """Read the documents that PT2_DOCUMENTS names, from an archive that holds no other records than ours.

    Raises:
        ValueError: if the archive is damaged, lacks a record, or holds one that does not belong.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if sum(entry.file_size for entry in archive.infolist()) > len(data):
                raise ValueError("its records are larger than the file")
            strange = [name for name in names if name not in _NEEDED and not _TENSOR.fullmatch(name)]
            if strange:
                raise ValueError(f"it holds {strange[0][:80]!r}, which does not belong")
            missing = sorted(_NEEDED - set(names))
            if missing or len(set(names)) != len(names):
                raise ValueError(f"it lacks {missing[0]}" if missing else "it holds two records of one name")
            if archive.getinfo(SAMPLE_INPUTS).file_size:
                raise ValueError("it holds pickled sample inputs")
            return [parse_json(archive.read(name)) for name in PT2_DOCUMENTS]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError(str(error)) from None


def _leaves(value: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield every value of a JSON document that holds no others, with the key it stands under; keys count as words."""
    if isinstance(value, dict):
        for inner, part in value.items():
            yield "", inner
            yield from _leaves(part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part, key)
    else:
        yield key, value
