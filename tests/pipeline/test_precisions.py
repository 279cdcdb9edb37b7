"""Files of other precisions through the commands: export writes, verify judges, package and check know them."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import pipeline.export
from export.artifact.layout import ALL_FILES
from export.onnx_export import ONNX_FILE
from export.precision_files import (
    CALIBRATION_FILE,
    CALIBRATION_ROWS,
    ONNX_FP16_FILE,
    ONNX_INT8_FILE,
    OPTIONAL_FILES,
    PRECISION_FILES,
    calibration_rows,
    read_calibration,
    write_calibration,
)
from export.proof.precision import INT8, PRECISIONS
from export.quantization import FORMS, requantize
from pipeline.cli import DEFAULT_BUDGET, cli
from tests.questions import QUICK_OPTIONS


def ferry(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with both files, verified. Read only."""
    run = Path(shutil.copytree(small_run, tmp_path_factory.mktemp("precisions") / "run"))
    exported = ferry("export", "--run", run, "--precision", "int8", "--precision", "fp16")
    assert exported.exit_code == 0, exported.output
    assert exported.output.count(ONNX_INT8_FILE) == exported.output.count(ONNX_FP16_FILE) == 1
    verified = ferry("verify", "--run", run, *QUICK_OPTIONS)
    assert verified.exit_code == 0, verified.output
    return run


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def record_of(run: Path, stage: str = "verify", name: str = "verification.json") -> dict:
    return json.loads((run / stage / name).read_text())


def test_export_says_what_was_asked_and_skips_the_same(run: Path) -> None:
    record = record_of(run, "export", "export.json")
    assert record["inputs"]["asked"]["precisions"] == {"fp16": "fp16", "int8": "static"}
    assert {*OPTIONAL_FILES} < record["files"].keys()
    again = ferry("export", "--run", run, "--precision", "fp16", "--precision", "int8", "--int8-form", "static")
    assert (again.exit_code, again.output) == (0, f"export: {run / 'export'} is current\n")


def test_another_form_exports_again_and_what_is_not_asked_for_goes(copy: Path) -> None:
    before = {file.name: file.read_bytes() for file in (copy / "export").iterdir()}
    assert ferry("export", "--run", copy, "--precision", "int8", "--int8-form", "qdq").exit_code == 0
    after = {file.name: file.read_bytes() for file in (copy / "export").iterdir()}
    assert before.keys() - after.keys() == {ONNX_FP16_FILE}
    assert after[ONNX_FILE] == before[ONNX_FILE]
    assert after[ONNX_INT8_FILE] != before[ONNX_INT8_FILE]
    # A form is nothing where no int8 is asked for.
    assert ferry("export", "--run", copy, "--int8-form", "dynamic").exit_code == 0
    assert not {file.name for file in (copy / "export").iterdir()} & {*OPTIONAL_FILES}
    assert ferry("export", "--run", copy).output == f"export: {copy / 'export'} is current\n"


def test_verification_lays_the_files_side_by_side(run: Path) -> None:
    record = record_of(run)
    assert [row["file"] for row in record["precisions"]] == [ONNX_FILE, ONNX_FP16_FILE, ONNX_INT8_FILE]
    for row in record["precisions"]:
        assert row["bytes"] == (run / "export" / row["file"]).stat().st_size
        assert row["lost"] == pytest.approx(record["test_split"]["backends"][0]["accuracy"] - row["accuracy"], abs=2e-6)
    assert [row["budget"] for row in record["precisions"]] == [None, None, 0.005]
    assert {*OPTIONAL_FILES} < record["inputs"]["files"].keys()
    page = (run / "verify" / "verification.html").read_text()
    assert page.count("<h2>Precisions</h2>") == 1
    assert f"<code>{ONNX_INT8_FILE}</code>" in page


def test_a_smaller_budget_than_was_kept_is_judged_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class AskedError(Exception):
        pass

    def prove(*_: object, int8_loss: float, **__: object) -> None:
        raise AskedError(int8_loss)

    monkeypatch.setattr("pipeline.verify.prove", prove)
    for budget in ("0.5", "3"):
        assert ferry("verify", "--run", run, *QUICK_OPTIONS, "--accuracy-budget", budget).output.endswith(
            "is current\n"
        )
    smaller = ferry("verify", "--run", run, *QUICK_OPTIONS, "--accuracy-budget", "0.25")
    assert isinstance(smaller.exception, AskedError)
    assert smaller.exception.args == (0.0025,)


def test_a_bad_quantisation_is_refused_with_its_loss(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every range is a sixteenth of what it should be: the ranges are found out, and the task says what it costs."""
    honest = pipeline.export.write_precision

    def cut(precision: str, model: bytes, batches: object, *, form: str) -> bytes:
        data = honest(precision, model, batches, form=form)
        told = json.loads(_metadata(data))["quantization"]
        ranges = {name: [end / 16 for end in ends] for name, ends in told["ranges"].items()}
        return requantize(model, told | {"ranges": ranges})

    monkeypatch.setattr(pipeline.export, "write_precision", cut)
    assert ferry("export", "--run", copy, "--precision", "int8").exit_code == 0
    result = ferry("verify", "--run", copy, *QUICK_OPTIONS)
    assert result.exit_code == 1
    record = record_of(copy)
    found = {part["backend"]: part["accuracy"] for part in record["test_split"]["backends"]}
    loss = 100 * (found["eager"] - found["onnxruntime-cpu-all-int8"])
    assert loss > 0.5
    assert f"{loss:.2f} points below eager's; int8 may lose 0.5" in " ".join(result.output.split())
    assert "ranges of int8 are those of the training rows: model_int8.onnx: encoder" in " ".join(result.output.split())
    packaged = ferry("package", "--run", copy, "--artifacts", copy / "artifacts")
    assert (packaged.exit_code, (copy / "artifacts").exists()) == (1, False)


def _metadata(data: bytes) -> str:
    (entry,) = onnx.load_from_string(data).metadata_props
    return str(entry.value)


def test_another_models_file_is_refused(copy: Path) -> None:
    """The hash in the export's record fits; what it follows from does not."""
    other = (copy / "export" / ONNX_FP16_FILE).read_bytes()
    record = record_of(copy, "export", "export.json")
    (copy / "export" / ONNX_INT8_FILE).write_bytes(other)
    record["files"][ONNX_INT8_FILE] = record["files"][ONNX_FP16_FILE]
    (copy / "export" / "export.json").write_text(json.dumps(record))
    result = ferry("verify", "--run", copy, *QUICK_OPTIONS)
    assert result.exit_code == 1
    assert "files: other precisions follow from model.onnx: model_int8.onnx" in " ".join(result.output.split())


def test_the_artifact_holds_them_and_is_checked(run: Path, tmp_path: Path) -> None:
    packaged = ferry("package", "--run", run, "--artifacts", tmp_path)
    assert packaged.exit_code == 0, packaged.output
    folder = tmp_path / "small" / "1.0.0"
    assert {file.name for file in folder.iterdir()} == {*ALL_FILES, *OPTIONAL_FILES}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {*OPTIONAL_FILES} < manifest["files"].keys()
    tolerances = json.loads((folder / "goldens.json").read_text())["tolerance"]["precisions"]
    assert tolerances.keys() == {*OPTIONAL_FILES}
    assert f"| `{ONNX_INT8_FILE}` | int8 |" in (folder / "README.md").read_text()
    for artifact in (folder, tmp_path / "small" / "small-1.0.0.tar.gz"):
        assert ferry("check", artifact).exit_code == 0
    # The rows of calibration are the user's.
    calibration = (run / "train" / CALIBRATION_FILE).read_bytes()
    assert all(calibration[-400:] not in file.read_bytes() for file in folder.iterdir())


def test_calibration_takes_rows_from_all_over_the_split() -> None:
    assert calibration_rows(3) == [0, 1, 2]
    rows = calibration_rows(100_000)
    assert len(rows) == len(set(rows)) == CALIBRATION_ROWS
    assert (rows[0], rows == sorted(rows)) == (0, True)
    assert rows[-1] > 99_000


def test_rows_of_calibration_come_back_padded_and_in_order_of_length() -> None:
    rows = [np.arange(length, dtype=np.int32) + 5 for length in (3, 1, 2)]
    ((ids, mask),) = read_calibration(write_calibration(rows))
    assert ids.tolist() == [[5, 0, 0], [5, 6, 0], [5, 6, 7]]
    assert mask.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    with pytest.raises(ValueError, match=r"calibration\.safetensors is damaged.*Train again"):
        read_calibration(b"nothing")


def test_the_command_line_names_what_there_is() -> None:
    parameters = {parameter.name: parameter for parameter in cli.commands["export"].params}
    assert list(parameters["precisions"].type.choices) == list(PRECISION_FILES)
    assert list(parameters["int8_form"].type.choices) == list(FORMS)
    assert PRECISIONS[INT8].accuracy_loss == DEFAULT_BUDGET / 100
