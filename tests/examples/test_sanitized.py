"""The C++ consumer under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer; building it takes minutes.

Nothing is suppressed: neither libtorch nor SentencePiece gives a false alarm here.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.consumers import TIMEOUT_SECONDS, Consumer, copy_artifact, flip, reseal
from tests.examples.fuzz import make_requests, make_text
from tests.examples.test_fuzz import COUNT, SEED, ask, read_limits

pytestmark = pytest.mark.slow

# No exit code of the programs themselves.
FOUND = 99
ENVIRONMENT = {
    "ASAN_OPTIONS": f"exitcode={FOUND}:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": f"exitcode={FOUND}:print_stacktrace=1",
}


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, arguments)],
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture
def program(sanitized: Path) -> Consumer:
    settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    command = ["env", *settings, str(sanitized / "consumer" / "classify")]
    return Consumer(name="sanitized", command=command, model="model.pt", runtime="libtorch")


@pytest.mark.parametrize(
    ("fault", "report"),
    [
        ("leak", "LeakSanitizer: detected memory leaks"),
        ("read past the end", "AddressSanitizer: heap-buffer-overflow"),
        ("read after free", "AddressSanitizer: heap-use-after-free"),
        ("overflow", "runtime error: signed integer overflow"),
    ],
)
def test_planted_faults_are_found(sanitized: Path, artifact: Path, fault: str, report: str) -> None:
    done = run(sanitized / "planted", artifact, fault)
    assert done.returncode == FOUND
    assert report in done.stderr


def test_without_a_fault_nothing_is_found(sanitized: Path, artifact: Path) -> None:
    done = run(sanitized / "planted", artifact, "none")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["strict", "tagger"])
def test_odd_requests(program: Consumer, request: pytest.FixtureRequest, kind: str) -> None:
    artifact: Path = request.getfixturevalue(kind)
    answers = ask(program, artifact, make_requests(SEED, int(COUNT or 3_000), read_limits(artifact)))
    assert any("error" in answer for answer in answers)


@pytest.mark.parametrize("kind", ["strict", "tagger"])
def test_texts_and_goldens(program: Consumer, request: pytest.FixtureRequest, kind: str) -> None:
    artifact: Path = request.getfixturevalue(kind)
    generator = random.Random(SEED)
    texts = [make_text(generator).encode("utf-8", "replace").replace(b"\n", b" ") for _ in range(300)]
    result = program.run(artifact, stdin=b"\n".join(texts))
    assert result.code == 0
    assert all(line.startswith("classify: text ") for line in result.err.splitlines())
    assert program.run(artifact, b"good", b"\xff").code == 1
    assert program.run(artifact, "--help").code == 0
    if kind == "tagger":
        result = program.run(artifact, "--self-test")
        assert (result.code, result.err) == (0, "")


def test_damaged_artifacts(program: Consumer, artifact: Path, tmp_path: Path) -> None:
    copy = copy_artifact(artifact, tmp_path)
    flip(copy / "manifest.json", 0.5)
    program.refuses(copy)
    for file in ("model.pt", "tokenizer.model", "goldens.json"):
        good = (copy / file).read_bytes()
        for bad in (b"", good[: len(good) // 2]):
            shutil.copy(artifact / "manifest.json", copy)
            (copy / file).write_bytes(bad)
            reseal(copy)
            program.refuses(copy, "--self-test")
        (copy / file).write_bytes(good)


def test_the_library(sanitized: Path, artifact: Path) -> None:
    done = run(sanitized / "library", artifact)
    assert (done.returncode, done.stderr) == (0, "")
    whole = "must hold as many values as its shape says"
    assert done.stdout.splitlines() == [
        "accepted",
        "input_ids must be (batch, sequence); got (3). Reshape it.",
        "input_ids must be (batch, sequence); got (). Reshape it.",
        "input_ids must be (batch, sequence); got (1, 3, 1). Reshape it.",
        f"input_ids {whole}, (1, 3); got 2. Give one for each position.",
        f"input_ids {whole}, (-1, -3); got 3. Give one for each position.",
        f"input_ids {whole}, (1099511627776, 1099511627776); got 0. Give one for each position.",
        f"attention_mask {whole}, (1, 3); got 2. Give one for each position.",
        "attention_mask must have the shape of input_ids, (1, 3); got (1, 2). Give one mask value for each id.",
        "the text must be valid UTF-8; got the byte 0xff at offset 0. Convert it to UTF-8 first.",
        "the text must be valid UTF-8; got the byte 0xc3 at offset 2. Convert it to UTF-8 first.",
        "this artifact classifies whole texts; call classify.",
        "0",
        "70 same",
    ]
