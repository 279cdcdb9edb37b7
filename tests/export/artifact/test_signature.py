"""Signatures: what Ferry signs model-signing verifies, and both refuse the same."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from model_signing import verifying

from export.artifact.archive import write_archive
from export.artifact.check import check_artifact, judge
from export.artifact.layout import ALL_FILES, ArtifactError
from export.artifact.sign import sign_artifact
from export.artifact.signature import load_private_key, load_public_key
from pipeline.run import ROOT
from tests.export.artifact.forge import rebind
from tests.export.artifact.keys import KeyPair, make_keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def signed_once(artifact: Path, keys: KeyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(artifact, tmp_path_factory.mktemp("signed") / "1.0.0"))
    sign_artifact(folder, keys.private)
    return folder


@pytest.fixture
def signed(signed_once: Path, tmp_path: Path) -> Path:
    """A signed artifact that a test may break: its folder; its signature is beside it."""
    shutil.copytree(signed_once.parent, tmp_path / "artifacts")
    return tmp_path / "artifacts" / "1.0.0"


def signature_of(folder: Path) -> Path:
    return folder.parent / "small-1.0.0.sig"


def model_signing_accepts(folder: Path, key: Path) -> bool:
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
        verifier.verify(folder, signature_of(folder))
    except (ValueError, KeyError, TypeError, OSError, InvalidSignature):
        return False
    return True


def refusal(folder: Path, key: Path) -> str:
    """See that the check and model-signing itself both refuse, and return the check's sentence."""
    (finding,) = judge(folder, public_key=key).findings
    assert (finding.check, finding.kind) == ("signature", "structural")
    return finding.problem


def test_signature_is_accepted_by_ferry_and_by_model_signing(signed: Path, artifact: Path, keys: KeyPair) -> None:
    assert check_artifact(signed, public_key=keys.public)["name"] == "small"
    assert model_signing_accepts(signed, keys.public)
    # The artifact is what it was.
    for name in ALL_FILES:
        assert (signed / name).read_bytes() == (artifact / name).read_bytes()
    assert {path.name for path in signed.parent.iterdir()} == {"1.0.0", "small-1.0.0.sig"}


def test_one_signature_is_about_folder_and_tar(signed: Path, keys: KeyPair, tmp_path: Path) -> None:
    contents = {name: (signed / name).read_bytes() for name in ALL_FILES}
    archive = signed.parent / "small-1.0.0.tar.gz"
    write_archive(archive, "small-1.0.0", contents)
    check_artifact(archive, public_key=keys.public)
    # Signed from the tar, it is about the folder too.
    signature_of(signed).unlink()
    assert sign_artifact(archive, keys.private) == (signature_of(signed), False)
    check_artifact(signed, public_key=keys.public)
    assert model_signing_accepts(signed, keys.public)
    moved = signature_of(signed).rename(tmp_path / "moved.sig")
    check_artifact(archive, public_key=keys.public, signature=moved)


@pytest.mark.parametrize("curve", ["P-384", "P-521"])
def test_every_curve_of_model_signing_is_known(signed: Path, tmp_path: Path, curve: str) -> None:
    keys = make_keys(tmp_path, curve=curve, password=b"secret")
    signature_of(signed).unlink()
    sign_artifact(signed, keys.private, password="secret")
    check_artifact(signed, public_key=keys.public)
    assert model_signing_accepts(signed, keys.public)


def test_second_signature_is_not_made(signed: Path, keys: KeyPair, tmp_path: Path) -> None:
    before = signature_of(signed).read_bytes()
    assert sign_artifact(signed, keys.private) == (signature_of(signed), True)
    with pytest.raises(ArtifactError, match="was made with another key than the one given"):
        sign_artifact(signed, make_keys(tmp_path, "other").private)
    assert signature_of(signed).read_bytes() == before


def test_unsound_artifact_is_not_signed(broken: Path, keys: KeyPair) -> None:
    (broken / "more").write_bytes(b"")
    with pytest.raises(ArtifactError, match="more does not belong"):
        sign_artifact(broken, keys.private)
    assert not signature_of(broken).exists()


def test_another_key_is_refused(signed: Path, tmp_path: Path) -> None:
    other = make_keys(tmp_path, "other").public
    assert refusal(signed, other) == f"{signature_of(signed)} was made with another key than the one given."
    assert not model_signing_accepts(signed, other)


def test_changed_file_is_refused_though_every_hash_was_rebuilt(signed: Path, keys: KeyPair) -> None:
    (signed / "README.md").write_text("another card")
    rebind(signed)
    problem = refusal(signed, keys.public)
    assert "is by this key, but about other files than these" in problem
    assert "'README.md'" in problem
    assert "'model.pt'" not in problem
    assert not model_signing_accepts(signed, keys.public)


def test_signature_of_another_artifact_is_refused(
    signed: Path, other_artifact: Path, keys: KeyPair, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(other_artifact, tmp_path / "other" / "1.0.0"))
    sign_artifact(other, keys.private)
    shutil.copy(signature_of(other), signature_of(signed))
    assert "'model.pt'" in refusal(signed, keys.public)
    assert not model_signing_accepts(signed, keys.public)


def test_missing_signature_is_refused(signed: Path, keys: KeyPair) -> None:
    signature_of(signed).unlink()
    expected = f"there is no signature {signature_of(signed)}. Fetch it, or name it with --signature."
    assert refusal(signed, keys.public) == expected


def put(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def change_payload(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """Change the statement, and not the signature of it: what one who has no key can do."""

    def forge(bundle: Any) -> None:
        statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
        change(statement)
        bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    return forge


DAMAGED = "is damaged, or is no signature of model-signing with a key pair"
FORGED = "is not a signature by the key given: it was forged or damaged."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("mediaType", value="another"), DAMAGED),
        (put("dsseEnvelope", "payloadType", value="another"), DAMAGED),
        (put("dsseEnvelope", "payload", value="not base64!"), DAMAGED),
        (put("dsseEnvelope", "payload", value=7), DAMAGED),
        (put("dsseEnvelope", "signatures", value=[]), DAMAGED),
        (lambda bundle: bundle["dsseEnvelope"]["signatures"].append({"sig": ""}), DAMAGED),
        (put("verificationMaterial", value={}), DAMAGED),
        (lambda bundle: bundle.clear(), DAMAGED),
        (put("verificationMaterial", "publicKey", "hint", value=None), "was made with another key"),
        (put("dsseEnvelope", "signatures", 0, "sig", value=""), FORGED),
        (put("dsseEnvelope", "signatures", 0, "sig", value="AAAA"), FORGED),
        (put("dsseEnvelope", "payload", value="e30="), FORGED),
        (change_payload(put("predicate", "resources", 0, "digest", value="0" * 64)), FORGED),
        (change_payload(lambda statement: statement["predicate"]["resources"].pop()), FORGED),
    ],
)
def test_damaged_or_forged_bundle_is_refused(
    signed: Path, keys: KeyPair, change: Callable[[Any], None], said: str
) -> None:
    bundle = json.loads(signature_of(signed).read_text())
    change(bundle)
    signature_of(signed).write_text(json.dumps(bundle))
    assert said in refusal(signed, keys.public)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000, b" " * (2**20 + 1)])
def test_file_that_is_no_bundle_is_refused(signed: Path, keys: KeyPair, data: bytes) -> None:
    signature_of(signed).write_bytes(data)
    assert DAMAGED in refusal(signed, keys.public)


def test_no_model_is_loaded_before_the_signature_was_verified(
    signed: Path, keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("a model was loaded")

    for name in ("replay", "check_files"):
        monkeypatch.setattr(f"export.artifact.check.{name}", load)
    signature_of(signed).unlink()
    assert "there is no signature" in refusal(signed, keys.public)
    with pytest.raises(AssertionError, match="a model was loaded"):
        check_artifact(signed)


@pytest.mark.parametrize("curve", ["secp256k1", "ed25519"])
def test_key_on_another_curve_is_a_mistake(signed: Path, tmp_path: Path, curve: str) -> None:
    keys = make_keys(tmp_path, curve=curve)
    with pytest.raises(ValueError, match="must be on one of the curves secp256r1, secp384r1, secp521r1; got "):
        check_artifact(signed, public_key=keys.public)
    with pytest.raises(ValueError, match="openssl ecparam -name prime256v1"):
        sign_artifact(signed, keys.private)


def test_file_that_is_no_key_is_a_mistake(signed: Path, keys: KeyPair, tmp_path: Path) -> None:
    locked = make_keys(tmp_path, "locked", password=b"secret").private
    for key, password, said in (
        (tmp_path / "none", None, "can't be read: No such file or directory"),
        (keys.public, None, "is a public key, and only the private one of it signs"),
        (signature_of(signed), None, "is not a private key in PEM"),
        (locked, None, "[Pp]assword"),
        (locked, "wrong", "is not a private key in PEM, or its password is wrong"),
        (keys.private, "needless", "[Pp]assword"),
    ):
        with pytest.raises(ValueError, match=said):
            sign_artifact(signed, key, password=password)
    for key, said in (
        (keys.private, "is a private key, and whoever checks has the public one of it"),
        (tmp_path / "none", "can't be read"),
        (signature_of(signed), "is not a public key in PEM"),
    ):
        with pytest.raises(ValueError, match=said):
            check_artifact(signed, public_key=key)


def sign_statement(bundle: Any, key: Path, payload: bytes) -> None:
    """Put a statement into a bundle, signed as its owner signs."""
    kind = bundle["dsseEnvelope"]["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    signature = load_private_key(key, None).sign(signed, ECDSA(SHA256()))
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda resources: resources.append(dict(resources[0])), "the file .* twice"),
        (lambda resources: resources.insert(0, {**resources[0], "digest": "0" * 64}), "the file .* twice"),
        (lambda resources: resources.append({**resources[0], "name": 5}), "a file's name that is no text: 5"),
        (
            lambda resources: resources.append({**resources[0], "name": "x", "digest": None}),
            "None as the SHA-256",
        ),
        (lambda resources: resources.append({**resources[0], "name": "x", "digest": "0"}), "'0' as the SHA-256"),
        (lambda resources: resources[0].update(algorithm="blake2b"), "another hash than SHA-256"),
        (lambda resources: resources[0].update(algorithm=["sha256"]), "another hash than SHA-256"),
    ],
    ids=["twice", "twice, the first another", "number", "null", "short", "hash", "list"],
)
def test_statement_that_can_be_read_in_two_ways_is_refused_though_its_owner_signed_it(
    signed: Path, keys: KeyPair, change: Callable[[Any], None], said: str
) -> None:
    bundle = json.loads(signature_of(signed).read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    change(statement["predicate"]["resources"])
    sign_statement(bundle, keys.private, json.dumps(statement).encode())
    signature_of(signed).write_text(json.dumps(bundle))
    problem = refusal(signed, keys.public)
    assert "signs something that Ferry does not know" in problem
    assert re.search(said, problem), problem


def test_key_that_stands_twice_is_refused_in_statement_and_bundle(signed: Path, keys: KeyPair) -> None:
    text = signature_of(signed).read_text()
    signature_of(signed).write_text('{"mediaType": "another",' + text.lstrip()[1:])
    problem = refusal(signed, keys.public)
    assert DAMAGED in problem
    assert "stands twice in one object" in problem
    bundle = json.loads(text)
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    sign_statement(bundle, keys.private, b'{"_type": "another",' + payload.lstrip()[1:])
    signature_of(signed).write_text(json.dumps(bundle))
    problem = refusal(signed, keys.public)
    assert "signs something that Ferry does not know" in problem
    assert "stands twice in one object" in problem


def test_key_or_signature_that_is_no_file_is_refused_without_waiting(
    signed: Path, keys: KeyPair, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = "can't be read: it is a folder, a pipe or a device, and no file."
    program = (
        "import sys; from pathlib import Path; from export.artifact.layout import ArtifactError\n"
        "from export.artifact.signature import load_public_key, read_bundle\n"
        "for load in (load_public_key, read_bundle):\n"
        "    try: load(Path(sys.argv[1]))\n"
        "    except (ValueError, ArtifactError) as error: print(error)\n"
    )
    for path in (tmp_path / "pipe", tmp_path):
        # In a process of its own, for that can be given up.
        command = [sys.executable, "-c", program, str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.splitlines() == [f"the key {path} {said}", f"the signature {path} {said}"]


def test_file_larger_than_any_key_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"x" * (2**16 + 1))
    with pytest.raises(ValueError, match=r"key\.pem has more than 65,536 bytes; a key in PEM has a few hundred"):
        load_public_key(tmp_path / "key.pem")
