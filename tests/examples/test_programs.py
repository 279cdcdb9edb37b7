"""The two programs as commands: options, exit codes, and the same words from both."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.examples.consumers import ROOT, TIMEOUT_SECONDS, Consumer


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "ARTIFACT is missing; give the folder of an artifact."),
        (["--nonsense"], "--nonsense is not an option; put -- before texts that begin with '-'."),
        (["ARTIFACT", "-1"], "-1 is not an option; put -- before texts that begin with '-'."),
        (["ARTIFACT", "--self-test", "text"], "--self-test takes no texts; give one or the other."),
        (["ARTIFACT", "--json", "text"], "--json takes no texts; write requests to standard input."),
        (["ARTIFACT", "--json", "--self-test"], "--self-test takes no requests; give it or --json."),
        (["ARTIFACT", "--threads"], "--threads must be a whole number from 1 to 1024; got ''."),
        (["ARTIFACT", "--threads", "0", "text"], "--threads must be a whole number from 1 to 1024; got '0'."),
        (
            ["ARTIFACT", "--threads", "9999999999"],
            "--threads must be a whole number from 1 to 1024; got '9999999999'.",
        ),
        (["no/such/folder", "text"], "no/such/folder is not a folder; give the folder of an artifact."),
        (["ARTIFACT/manifest.json"], "ARTIFACT/manifest.json is not a folder; give the folder of an artifact."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line(consumer: Consumer, artifact: Path, arguments: list[str], said: str) -> None:
    given = [argument.replace("ARTIFACT", str(artifact)) for argument in arguments]
    said = said.replace("ARTIFACT/", f"{artifact}/")
    result = consumer.run(*given)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"classify: {said}")
    assert result.err.endswith(" See --help.\n")
    assert result.err.count("\n") == 1


def test_a_folder_that_is_no_artifact(consumer: Consumer, tmp_path: Path) -> None:
    assert (
        consumer.refuses(tmp_path) == f"manifest.json is missing from {tmp_path}. Give the folder of a whole artifact."
    )


def test_help(cpp_consumer: Consumer, python_consumer: Consumer) -> None:
    results = [
        consumer.run("no/such/folder", option)
        for consumer in (cpp_consumer, python_consumer)
        for option in ("-h", "--help")
    ]
    assert len(set(results)) == 1
    assert (results[0].code, results[0].err) == (0, "")
    for word in ("ARTIFACT", "TEXT", "--json", "--self-test", "--threads", "--help", "Exit status"):
        assert word in results[0].out


def test_options_stand_anywhere(consumer: Consumer, artifact: Path) -> None:
    wanted = consumer.run(artifact, "one", "", stdin=b"never read")
    assert (wanted.code, wanted.out.count("\n"), wanted.err) == (0, 2, "")
    assert consumer.run("--threads", "1", artifact, "one", "") == wanted
    assert consumer.run(artifact, "one", "--threads", "2", "--", "") == wanted
    dashed = consumer.run(artifact, "--", "--self-test", "-1", "--")
    assert (dashed.code, dashed.out.count("\n")) == (0, 3)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["text"], ["--self-test"], ["--help"], ["--json"]], ids=" ".join)
def test_output_that_can_not_be_written(consumer: Consumer, artifact: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*consumer.command, str(artifact), *arguments],
            input=b"{}", stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"classify: standard output can't be written: No space left on device.\n"


def test_a_reader_that_goes_away(consumer: Consumer, artifact: Path) -> None:
    with consumer.started(artifact) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(b"one\n" * 100)
    assert err == b""
    assert process.returncode != 0


@pytest.mark.skipif(os.name == "nt", reason="this system's shell can't close streams")
@pytest.mark.parametrize(
    ("closed", "arguments", "code", "out", "err"),
    [
        ("<&-", "", 1, False, "classify: standard input can't be read: Bad file descriptor.\n"),
        ("<&-", "--json", 1, False, "classify: standard input can't be read: Bad file descriptor.\n"),
        ("<&-", "text", 0, True, ""),
        (">&-", "text", 1, False, "classify: standard output can't be written: Bad file descriptor.\n"),
        (">&-", "--json", 1, False, "classify: standard output can't be written: Bad file descriptor.\n"),
        (">&-", "--help", 1, False, "classify: standard output can't be written: Bad file descriptor.\n"),
        ("2>&-", "text", 0, True, ""),
        ("2>&-", "--threads 0", 2, False, ""),
        ("<&- >&- 2>&-", "text", 1, False, ""),
    ],
)
def test_closed_streams(
    consumer: Consumer, artifact: Path, closed: str, arguments: str, code: int, out: bool, err: str
) -> None:
    command = f"exec {shlex.join([*consumer.command, str(artifact)])} {arguments} {closed}"
    done = subprocess.run(command, shell=True, input=b"{}\n", capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert (done.returncode, done.stderr.decode()) == (code, err)
    assert (done.stdout != b"") == out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_errors_that_can_not_be_written(consumer: Consumer, artifact: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*consumer.command, str(artifact), "--threads", "0"],
            stdout=subprocess.PIPE, stderr=full, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_folder_whose_name_is_not_utf8(consumer: Consumer) -> None:
    done = subprocess.run(
        [*map(os.fsencode, consumer.command), b"no\xff"], capture_output=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"classify: no\xff is not a folder; give the folder of an artifact. See --help.\n"


def test_the_python_consumer_needs_no_torch(python_consumer: Consumer, artifact: Path) -> None:
    program = """
import importlib.util, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
for name in ("torch", "onnx", "transformers", "tokenizers", "ferry"):
    assert importlib.util.find_spec(name) is None, name
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert end.code == 0, end.code
assert not {"models", "export", "pipeline"} & set(sys.modules)
"""
    python, script = python_consumer.command
    done = subprocess.run(
        [python, "-c", program, script, str(artifact), "--self-test"],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_python_module_checks_ids(python_consumer: Consumer, artifact: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from ferry_artifact import Artifact
artifact = Artifact(sys.argv[2])
ids = np.array([[2, 5, 3]])
mask = np.ones_like(ids)
assert artifact.logits(ids, mask).shape == (1, len(artifact.labels))
for wrong in (
    (ids.astype(np.int32), mask), (ids.astype(np.float32), mask), (ids, mask.astype(bool)),
    (ids[0], mask[0]), (ids, mask[:, :2]), (ids[:0], mask[:0]),
    (ids[:, :0], mask[:, :0]), (-ids, mask), (ids + artifact.limits.max_id, mask), (ids, mask * 2), (ids, -mask),
    (np.repeat(ids, 3, axis=0), mask), (np.repeat(ids, 999, axis=1), np.repeat(mask, 999, axis=1)),
):
    try:
        artifact.logits(*wrong)
    except ValueError as error:
        print(error)
    else:
        sys.exit(f"accepted {wrong}")
try:
    artifact.classify(["\\ud800"])
except ValueError as error:
    print(error)
try:
    artifact.tag(["a"])
except ValueError as error:
    print(error)
assert artifact.classify([]) == []
assert len(artifact.classify(["a"] * 70)) == 70
"""
    folder = str(ROOT / "examples" / "python")
    done = subprocess.run(
        [python_consumer.command[0], "-c", program, folder, str(artifact)],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 15
    for line, (name, got) in zip(
        lines,
        (
            *(("input_ids", "(1, 3) int32"), ("input_ids", "(1, 3) float32"), ("attention_mask", "(1, 3) bool")),
            ("input_ids", "(3,) int64"),
        ),
        strict=False,
    ):
        wanted = f'{name} must be (batch, sequence) int64; got {got}. Reshape it, or cast it with .astype("int64").'
        assert line == wanted
    assert lines[7].startswith("input_ids must lie in 0 to ")
    assert lines[7].endswith("padding too; got -2. Use the tokenizer of this artifact.")
    assert "lone surrogate U+D800 at character 0" in lines[13]
    assert lines[14] == "this artifact classifies whole texts; call classify."
