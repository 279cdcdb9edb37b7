"""The code and the objects of model.pt, record by record, against those of a fresh export.

What `forward` computes is compared by `fresh_export`. Code may also run beside it: when the file is loaded
(`__setstate__`), before and after the module is called (hooks), or under another name.
"""

import io
import pickletools
import re
from collections import Counter
from collections.abc import Iterator

from export.proof.checks.files import Files, read_archive
from export.proof.checks.fresh_export import fresh_export, judge
from export.torchscript import TORCHSCRIPT_FILE

_CLASS = re.compile(r"^(?=class |def )", re.MULTILINE)
# These follow the order of Python's string hashes.
_CONSTANTS = re.compile(r"(?:^  \w+ : Final\[.*\n)+", re.MULTILINE)
_BESIDE_FORWARD = re.compile(r"__(?:setstate|getstate)__|__forward(?:_pre)?_hooks__")
_PICKLES = ("data.pkl", "constants.pkl")
# The weights, which have a check of their own, and the metadata, which has one too.
_ELSEWHERE = re.compile(r"data/\d+|extra/.*")


def check_code_beside_forward(files: Files) -> list[str]:
    """Look for code that runs without being called: when the file is loaded, or before and after a call."""
    found = {
        match.group()
        for name, data in files.archive
        if name.startswith("code/")
        for match in _BESIDE_FORWARD.finditer(data.decode("utf-8", "replace"))
    }
    return [f"{TORCHSCRIPT_FILE} has code that runs beside forward: {name}" for name in sorted(found)]


def check_script_records(files: Files) -> list[str]:
    """Compare every record but weights and metadata: each class and function, each object, each setting."""
    got, wanted = (
        Counter(_parts(records))
        for records in (files.archive, read_archive(TORCHSCRIPT_FILE, fresh_export(files).torchscript))
    )
    odd = sorted({name for name, _ in (got - wanted)} | {name for name, _ in (wanted - got)})
    return judge(files, TORCHSCRIPT_FILE, [f"{TORCHSCRIPT_FILE}, {name} is not that of a fresh export" for name in odd])


def _parts(records: list[tuple[str, bytes]]) -> Iterator[tuple[str, str]]:
    """Yield a name and what it holds, in a form that two exports of one model share."""
    for name, data in records:
        if _ELSEWHERE.fullmatch(name):
            continue
        if name in _PICKLES:
            yield name, repr(list(_operations(data)))
        elif name.startswith("code/"):
            for part in _CLASS.split(data.decode("utf-8")):
                title = part.partition("\n")[0].partition("(")[0]
                yield f"{name}, {title}".removesuffix(", "), _CONSTANTS.sub(_in_order, part).strip("\n")
        else:
            yield name, data.hex()


def _operations(data: bytes) -> Iterator[tuple[str, object]]:
    """Read a pickle's instructions without carrying them out; what follows the last one is one more."""
    stream = io.BytesIO(data)
    for opcode, argument, _ in pickletools.genops(stream):
        yield opcode.name, argument
    yield "rest", stream.read()


def _in_order(match: re.Match[str]) -> str:
    return "".join(sorted(match.group().splitlines(keepends=True)))
