import hashlib
import json
import shutil
import subprocess
from contextlib import suppress

import pytest

from export.artifact.check import check_artifact
from export.artifact.layout import ALL_FILES, BOUND_FILES, ArtifactError
from export.artifact.load import RUNTIMES, manifest_validator, open_artifact
from export.proof.report import page


def rebuild_sums(folder):
    """Write SHA256SUMS anew, as `sha256sum` would over every other file."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))


def rebind(folder):
    """Write every hash anew, in the manifest too: what a careful forger does."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rebuild_sums(folder)


def test_good_artifact_is_accepted(artifact):
    assert check_artifact(artifact)["name"] == "small"


def test_moved_artifact_is_accepted(broken):
    assert check_artifact(broken)["version"] == "1.0.0"


def test_artifact_holds_what_it_promises(artifact):
    assert {path.name for path in artifact.iterdir()} == set(ALL_FILES)
    manifest = json.loads((artifact / "manifest.json").read_text())
    assert 0 < manifest["metrics"]["test"]["accuracy"] <= 1
    assert manifest["verification"]["providers"] == {"cpu": "verified", "cuda": "not verified"}
    assert list(manifest_validator().iter_errors(manifest)) == []
    config = json.loads((artifact / "config.json").read_text())
    assert [config["id2label"][str(index)] for index in range(len(config["id2label"]))] == manifest["metadata"][
        "labels"
    ]


def test_a_pattern_of_the_schema_ends_where_the_text_ends(artifact):
    """A reader in another language refuses a line feed at the end; Python's own `$` does not."""
    manifest = json.loads((artifact / "manifest.json").read_text())
    manifest["version"] += "\n"
    (error,) = manifest_validator().iter_errors(manifest)
    assert error.json_path == "$.version"


def test_sha256sum_accepts_the_sums(artifact):
    if not shutil.which("sha256sum"):
        pytest.skip("sha256sum is not on this system")
    result = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=artifact, capture_output=True)
    assert result.returncode == 0
    assert result.stdout.count(b": OK") == len(ALL_FILES) - 1


@pytest.mark.parametrize("sums", ["kept", "rebuilt"])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ALL_FILES)
def test_one_changed_byte_is_refused(broken, name, where, sums):
    data = bytearray((broken / name).read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    (broken / name).write_bytes(data)
    if sums == "rebuilt" and name != "SHA256SUMS":
        rebuild_sums(broken)
    with pytest.raises(ArtifactError):
        check_artifact(broken)


@pytest.mark.parametrize("name", ALL_FILES)
def test_missing_file_is_refused(broken, name):
    (broken / name).unlink()
    with pytest.raises(ArtifactError, match=name):
        check_artifact(broken)


def test_additional_file_is_refused(broken):
    (broken / "model.onnx.data").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"model\.onnx\.data does not belong"):
        check_artifact(broken)


def test_all_changed_files_are_listed(broken):
    for name in ("model.pt", "goldens.json"):
        (broken / name).write_bytes(b"")
    with pytest.raises(ArtifactError) as error:
        check_artifact(broken)
    assert "model.pt" in str(error.value)
    assert "goldens.json" in str(error.value)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.pt2"])
def test_exchanged_model_is_refused_though_every_hash_was_rebuilt(broken, other_artifact, name):
    shutil.copy(other_artifact / name, broken / name)
    with pytest.raises(ArtifactError, match=f"{name} is not the file"):
        check_artifact(broken)
    rebind(broken)
    with pytest.raises(ArtifactError, match="weights"):
        check_artifact(broken)


def test_a_file_that_no_check_can_read_is_told_once(broken):
    (broken / "model.pt").write_bytes(b"no archive")
    rebind(broken)
    with pytest.raises(ArtifactError) as error:
        check_artifact(broken)
    said = str(error.value).splitlines()
    assert len(said) == len(set(said))
    assert "  can't be checked: model.pt is damaged: File is not a zip file" in said


@pytest.mark.parametrize("name", sorted(set(BOUND_FILES) - {"README.md", "model.onnx", "model.pt", "model.pt2"}))
def test_exchanged_file_is_refused_though_every_hash_was_rebuilt(broken, other_artifact, name):
    if (broken / name).read_bytes() == (other_artifact / name).read_bytes():
        pytest.skip("both runs share this file: it does not depend on the seed")
    shutil.copy(other_artifact / name, broken / name)
    rebind(broken)
    with pytest.raises(ArtifactError):
        check_artifact(broken)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 1),
        (("metadata", "temperature"), 0),
        (("metadata", "threshold"), 0.5),
        (("metadata", "task"), "token-classification"),
        (("metadata", "labels", 0), "another"),
        (("metadata", "limits", "sequence_length", "max"), 4096),
        (("metadata", "activation"), "sigmoid"),
        (("metrics", "test", "accuracy"), 1.5),
        (("verification", "verdict"), "failed"),
        (("name",), "../up"),
    ],
)
def test_changed_manifest_is_refused_though_every_hash_was_rebuilt(broken, path, value):
    manifest = json.loads((broken / "manifest.json").read_text())
    place = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (broken / "manifest.json").write_text(json.dumps(manifest))
    rebuild_sums(broken)
    with pytest.raises(ArtifactError):
        check_artifact(broken)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 3.0),
        (("metadata", "format"), 3.0),
        (("metadata", "limits", "batch_size", "min"), 1.0),
        (("metadata", "limits", "batch_size", "min"), True),
        (("metadata", "limits", "sequence_length", "max"), 24.0),
        (("metadata", "limits", "input_ids", "min"), 0.0),
        (("metadata", "tokenizer", "reserved_ids", "cls"), 2.0),
        (("files", "model.pt", "bytes"), 1e5),
    ],
)
def test_number_with_a_fraction_is_no_whole_number(broken, path, value):
    manifest = json.loads((broken / "manifest.json").read_text())
    place = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (broken / "manifest.json").write_text(json.dumps(manifest))
    rebuild_sums(broken)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(broken)
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith("manifest.json: $.")
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ufeff{}", '{"format": NaN}'])
def test_manifest_that_is_none_is_refused(broken, text):
    (broken / "manifest.json").write_text(text)
    rebuild_sums(broken)
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        check_artifact(broken)


def test_golden_that_is_wrong_is_refused(broken):
    goldens = json.loads((broken / "goldens.json").read_text())
    goldens["texts"][0]["logits"][0] += 1e-3
    goldens["texts"][1]["input_ids"][1] += 1
    goldens["batches"][0]["logits"][0][0] = 1e9
    (broken / "goldens.json").write_text(json.dumps(goldens))
    rebind(broken)
    with pytest.raises(ArtifactError) as error:
        check_artifact(broken)
    for runtime in ("torchscript", "onnxruntime"):
        assert f"{runtime}: golden text 1" in str(error.value).replace("-cpu-all", "")
        assert f"{runtime}: golden text 2" in str(error.value).replace("-cpu-all", "")
        assert f"{runtime}: golden batch right padding" in str(error.value).replace("-cpu-all", "")


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="is neither a folder nor a tar"):
        check_artifact(tmp_path / "none")
    with pytest.raises(ArtifactError, match=r"manifest\.json is missing"):
        check_artifact(tmp_path)


def change_json(folder, name, change):
    """Change a document, and what follows from it: the page of a proof, and every hash."""
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    if name == "verification.json":
        # Of what is no proof there is no page.
        with suppress(KeyError):
            (folder / "verification.html").write_text(page(document), "utf-8")
    rebind(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("goldens.json", lambda goldens: goldens.update(texts=[], batches=[])),
        ("goldens.json", lambda goldens: goldens["tolerance"].update(logits=1e9)),
        ("goldens.json", lambda goldens: goldens.clear()),
        ("verification.json", lambda record: record["inputs"].update(files={})),
        ("verification.json", lambda record: record["failures"].append({"x": 1})),
        ("verification.json", lambda record: record["providers"].update(cuda="verified")),
        ("verification.json", lambda record: record.clear()),
        ("evaluation.json", lambda evaluation: evaluation["metrics"]["test"].update(ece=0.0)),
        ("evaluation.json", lambda evaluation: evaluation["pictures"].clear()),
        ("config.json", lambda config: config.update(temperature=2.0)),
        ("config.json", lambda config: config.update(threshold=0.0)),
        ("tokenizer.json", lambda tokenizer: tokenizer["model"].update(fuse_unk=False)),
        ("tokenizer.json", lambda tokenizer: tokenizer.clear()),
        ("tokenizer_config.json", lambda config: config.update(split_special_tokens=False)),
    ],
)
def test_forged_file_is_refused_though_every_hash_was_rebuilt(broken, name, change):
    change_json(broken, name, change)
    with pytest.raises(ArtifactError):
        check_artifact(broken)


def test_a_page_that_shows_more_than_the_proof_is_refused(broken):
    path = broken / "verification.html"
    path.write_text(path.read_text("utf-8").replace("not verified", "verified"), "utf-8")
    rebind(broken)
    with pytest.raises(ArtifactError, match=r"verification\.html is not the page that this version of Ferry makes"):
        check_artifact(broken)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["parity"]["backends"][0]["errors"].clear(),
        lambda record: record["parity"]["backends"][0].update(limit=float("nan")),
        lambda record: record["invariances"].insert(0, {}),
        lambda record: record.update(searches=5),
    ],
    ids=["errors", "limit", "law", "searches"],
)
def test_a_proof_of_which_no_page_can_be_made_is_refused_in_a_sentence(broken, change):
    path = broken / "verification.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    rebind(broken)
    with pytest.raises(ArtifactError, match="not sound"):
        check_artifact(broken)


def test_forged_accuracy_is_refused(broken):
    change_json(broken, "manifest.json", lambda manifest: manifest["metrics"]["test"].update(accuracy=1.0))
    with pytest.raises(ArtifactError, match="another test accuracy"):
        check_artifact(broken)


def test_deep_json_and_what_is_no_file_are_refused(broken):
    (broken / "goldens.json").unlink()
    (broken / "goldens.json").symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match=r"goldens\.json is a symbolic link; an artifact holds files only"):
        check_artifact(broken)
    with pytest.raises(ArtifactError, match=r"goldens\.json is missing from .*, or is no file"):
        open_artifact(broken).goldens()
    (broken / "goldens.json").unlink()
    (broken / "goldens.json").write_text("[" * 200_000)
    rebind(broken)
    with pytest.raises(ArtifactError, match="a file does not hold what Ferry writes into it"):
        check_artifact(broken)
    (broken / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        check_artifact(broken)


def test_tagging_artifact_is_accepted(tagging_artifact):
    manifest = check_artifact(tagging_artifact)
    assert manifest["metadata"]["task"] == "token-classification"
    assert manifest["metadata"]["pooling"] is None
    assert manifest["metadata"]["threshold"] == 0
    assert manifest["metrics"]["test"]["span_f1"] > 0.8


def test_wrong_words_in_a_golden_are_refused(tmp_path, tagging_artifact):
    broken = shutil.copytree(tagging_artifact, tmp_path / "broken")

    def change(goldens):
        goldens["texts"][0]["words"][0]["label"] = "B-place"
        goldens["texts"][0]["words"][1]["probability"] += 0.01
        goldens["texts"][1]["words"].append({"word": "more", "label": "O", "probability": 1.0})

    change_json(broken, "goldens.json", change)
    with pytest.raises(ArtifactError) as error:
        check_artifact(broken)
    for fault in ("is answered 'O'; wanted 'B-place'", "has probability", "golden text 2 has other words"):
        assert str(error.value).count(fault) == len(RUNTIMES)
