"""Both consumers require a signature where they are told to, and refuse in the same sentences."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.artifact.sign import sign_artifact
from tests.examples.consumers import ROOT, Consumer, copy_artifact, read_json, reseal
from tests.export.artifact.keys import KeyPair, make_keys

SIGNATURE = "small-1.0.0.sig"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def signature(artifact: Path, keys: KeyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = copy_artifact(artifact, tmp_path_factory.mktemp("signed"))
    return sign_artifact(copy, keys.private)[0]


@pytest.fixture
def copy(artifact: Path, signature: Path, tmp_path: Path) -> Path:
    """A copy of the artifact with its signature beside it."""
    shutil.copy(signature, tmp_path)
    return copy_artifact(artifact, tmp_path)


@pytest.fixture
def both(cpp_consumer: Consumer, python_consumer: Consumer) -> tuple[Consumer, Consumer]:
    return cpp_consumer, python_consumer


def refusal(both: tuple[Consumer, Consumer], copy: Path, *options: object) -> str:
    """See that both programs refuse in one sentence, the same, and return it."""
    said = {consumer.refuses(copy, "MIT licence", *options) for consumer in both}
    assert len(said) == 1, said
    return said.pop()


def test_signed_artifact_is_accepted(consumer: Consumer, copy: Path, keys: KeyPair, tmp_path: Path) -> None:
    plain = consumer.run(copy, "MIT licence")
    assert plain.code == 0
    assert consumer.run(copy, "MIT licence", "--public-key", keys.public) == plain
    assert consumer.run(f"{copy}/", "--public-key", keys.public, "--self-test").code == 0
    moved = (tmp_path / SIGNATURE).rename(tmp_path / "moved")
    assert consumer.run(copy, "MIT licence", "--public-key", keys.public, "--signature", moved) == plain
    # Nobody asked for it.
    moved.unlink()
    assert consumer.run(copy, "MIT licence") == plain


@pytest.mark.parametrize("curve", ["P-384", "P-521"])
def test_every_curve_is_known(consumer: Consumer, copy: Path, tmp_path: Path, curve: str) -> None:
    keys = make_keys(tmp_path, curve=curve)
    (tmp_path / SIGNATURE).unlink()
    sign_artifact(copy, keys.private)
    assert consumer.run(copy, "MIT licence", "--public-key", keys.public).code == 0


def test_missing_signature(both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair, tmp_path: Path) -> None:
    (tmp_path / SIGNATURE).unlink()
    said = refusal(both, copy, "--public-key", keys.public)
    assert said == f"there is no signature {tmp_path / SIGNATURE}. Fetch it with the artifact."


def test_another_key(both: tuple[Consumer, Consumer], copy: Path, tmp_path: Path) -> None:
    other = make_keys(tmp_path, "other").public
    assert (
        refusal(both, copy, "--public-key", other) == f"{tmp_path / SIGNATURE} was made with another key than {other}."
    )


@pytest.mark.parametrize("file", ["README.md", "model.onnx", "model.pt", "tokenizer.model"])
def test_changed_file_though_every_hash_was_rebuilt(
    both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair, file: str
) -> None:
    with (copy / file).open("ab") as changed:
        changed.write(b" ")
    reseal(copy)
    said = refusal(both, copy, "--public-key", keys.public)
    assert said.endswith("it was made for another artifact, or this one was changed.")


def test_file_that_nobody_signed(both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair) -> None:
    (copy / "more.txt").write_bytes(b"more")
    manifest = read_json(copy / "manifest.json")
    manifest["files"]["more.txt"] = {"sha256": "", "bytes": 4}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    reseal(copy)
    assert "is about other files than these" in refusal(both, copy, "--public-key", keys.public)


def put(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def forge(bundle: Any) -> None:
    """Change the statement, and not the signature of it."""
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"][0]["digest"] = "0" * 64
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("mediaType", value="another"), ': mediaType must be application/vnd.dev.sigstore.bundle.v0.3+json; got "'),
        (put("mediaType", value=3), ": mediaType must be a string."),
        (put("dsseEnvelope", value=[]), ": dsseEnvelope.payloadType is missing."),
        (put("dsseEnvelope", "payloadType", value="\x1b"), '; got "\\u001b".'),
        (put("dsseEnvelope", "signatures", value=[]), ": dsseEnvelope.signatures must hold one signature; got 0."),
        (put("dsseEnvelope", "signatures", 0, value=7), ": sig is missing."),
        (put("verificationMaterial", value={}), ": verificationMaterial.publicKey is missing."),
        *(
            (put("dsseEnvelope", "payload", value=text), ": dsseEnvelope.payload must be base64.")
            for text in ("AAA", "AAAA=", "AAAA====", "AA A", "AAA\n", "=AAA", "A===", "AA=A", "ÄAAA", "AA==AAAA")
        ),
        (put("dsseEnvelope", "signatures", 0, "sig", value="A"), ": sig must be base64."),
        (put("dsseEnvelope", "signatures", 0, "sig", value=""), ": it was forged or damaged."),
        (put("dsseEnvelope", "signatures", 0, "sig", value="AAAA"), ": it was forged or damaged."),
        (put("dsseEnvelope", "payload", value=""), ": it was forged or damaged."),
        (forge, ": it was forged or damaged."),
    ],
)
def test_damaged_or_forged_bundle(
    both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair, change: Callable[[Any], None], said: str, tmp_path: Path
) -> None:
    bundle = json.loads((tmp_path / SIGNATURE).read_text())
    change(bundle)
    (tmp_path / SIGNATURE).write_text(json.dumps(bundle))
    sentence = refusal(both, copy, "--public-key", keys.public)
    assert sentence.startswith(str(tmp_path / SIGNATURE))
    assert said in sentence


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"null"])
def test_file_that_is_no_bundle(
    both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair, data: bytes, tmp_path: Path
) -> None:
    (tmp_path / SIGNATURE).write_bytes(data)
    assert refusal(both, copy, "--public-key", keys.public).startswith(str(tmp_path / SIGNATURE))


def test_file_that_is_no_key(both: tuple[Consumer, Consumer], copy: Path, keys: KeyPair, tmp_path: Path) -> None:
    others = [make_keys(tmp_path, curve, curve=curve).public for curve in ("secp256k1", "ed25519")]
    for file in (copy / "model.pt", copy / "README.md", keys.private, *others):
        wanted = f"{file} must be a public key in PEM, on the curve P-256, P-384 or P-521."
        assert refusal(both, copy, "--public-key", file) == wanted
    assert "none" in refusal(both, copy, "--public-key", tmp_path / "none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--signature", "a.sig"], "--signature takes a --public-key to verify it with."),
        (["--public-key"], "--public-key takes the name of a file."),
        (["--public-key", "key.pub", "--signature", ""], "--signature takes the name of a file."),
    ],
)
def test_wrong_command_line(consumer: Consumer, artifact: Path, arguments: list[str], said: str) -> None:
    result = consumer.run(artifact, *arguments)
    assert (result.code, result.out, result.err) == (2, "", f"classify: {said} See --help.\n")


def test_signature_needs_cryptography_and_nothing_else_does(
    python_consumer: Consumer, copy: Path, keys: KeyPair, tmp_path: Path
) -> None:
    """Run where importing cryptography fails, as where it is not installed."""
    (tmp_path / "cryptography.py").write_text("raise ImportError('No module named cryptography')\n")
    example = ROOT / "examples" / "python"
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from ferry_artifact import Artifact, ArtifactError\n"
        "artifact = Artifact(sys.argv[3])\n"
        "try:\n"
        "    Artifact(sys.argv[3], public_key=sys.argv[4])\n"
        "except ArtifactError as error:\n"
        "    print(error)\n"
    )
    bare = Consumer(name="bare", command=[python_consumer.command[0], "-c", program], model="", runtime="")
    result = bare.run(tmp_path, example, copy, keys.public)
    wanted = "signatures can't be verified: No module named cryptography. Install cryptography.\n"
    assert (result.code, result.out, result.err) == (0, wanted, "")
