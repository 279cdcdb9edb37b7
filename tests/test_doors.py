"""The doors between the rooms: pipeline -> export -> models, never back; read from the imports, not from habit."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("models", "export", "pipeline")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
every_module = pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])

MAY_IMPORT = {
    "models": {"models", "torch"},
    "export": {
        *("export", "models", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy"),
        *("sentencepiece", "tokenizers", "safetensors", "jsonschema"),
        "google",  # protobuf, the language of ONNX files
        "hypothesis",  # draws the search's inputs
        *("cryptography", "model_signing"),  # signatures
    },
}
CLOSED_TO_PIPELINE = {"tests", "examples", "benchmarks"}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write the full name instead of a relative import"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_the_rooms_are_there() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} == set(ROOMS)


@every_module
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    packages = {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names
    if room == "pipeline":
        assert not packages & CLOSED_TO_PIPELINE
    else:
        assert packages <= MAY_IMPORT[room]


@pytest.mark.parametrize("table", ["attention", "position"])
def test_mechanisms_never_import_each_other(table: str) -> None:
    folder = ROOT / "models" / table
    for path in folder.glob("*.py"):
        if path.name != "__init__.py":
            within = {name for name in imports(path) if name.startswith(f"models.{table}")}
            assert all(name.startswith(f"models.{table}.base") for name in within), path


def test_oracles_import_torch_alone() -> None:
    packages = {name.split(".")[0] for name in imports(ROOT / "tests" / "oracles.py")}
    assert packages == {"math", "torch"}


@every_module
def test_nothing_is_swallowed_and_nothing_is_unpickled(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        raises_again = isinstance(node, ast.ExceptHandler) and ast.unparse(node.body[-1]) == "raise"
        if isinstance(node, ast.ExceptHandler) and not raises_again:
            caught = ast.unparse(node.type) if node.type else ""
            assert caught not in ("", "Exception", "BaseException"), f"line {node.lineno} catches everything"
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("torch.load", "torch.save"), f"line {node.lineno} pickles"
    assert not {name.split(".")[0] for name in imports(path)} & {"pickle", "cloudpickle", "dill", "joblib"}


@every_module
def test_no_module_postpones_its_annotations(path: Path) -> None:
    """TorchScript can't read them."""
    assert "__future__" not in imports(path)
