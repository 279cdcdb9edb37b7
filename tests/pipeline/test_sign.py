"""`ferry sign`, and `ferry check` with a public key: whole outputs and exit codes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from export.artifact.limits import MAX_SIZE
from pipeline.cli import DEFAULT_MAX_SIZE, MIB, cli
from tests.export.artifact.keys import KeyPair, make_keys


@pytest.fixture
def keys(tmp_path: Path) -> KeyPair:
    return make_keys(tmp_path)


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    shutil.copytree(artifact.parent, tmp_path / "small")
    return tmp_path / "small" / "1.0.0"


def ferry(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], env=environment)


def test_sign_and_check(copy: Path, keys: KeyPair) -> None:
    signature = copy.parent / "small-1.0.0.sig"
    for said in ("is signed", "is already signed"):
        result = ferry("sign", copy, "--key", keys.private)
        assert (result.exit_code, result.output) == (0, f"sign: {signature} {said}\n")
    for path in (copy, copy.parent / "small-1.0.0.tar.gz"):
        result = ferry("check", path, "--public-key", keys.public)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"check: {path} is sound (small 1.0.0), signed by {keys.public}\n"
    result = ferry("check", copy)
    assert (result.exit_code, result.stdout) == (0, f"check: {copy} is sound (small 1.0.0)\n")
    assert result.stderr == f"check: its signature {signature} was not checked; give --public-key\n"


def test_signature_that_is_wrong_or_missing_is_exit_code_1(copy: Path, keys: KeyPair, tmp_path: Path) -> None:
    result = ferry("check", copy, "--public-key", keys.public)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"there is no signature {copy.parent / 'small-1.0.0.sig'}" in result.stderr
    assert ferry("sign", copy, "--key", keys.private).exit_code == 0
    other = make_keys(tmp_path, "other")
    result = ferry("check", copy, "--public-key", other.public)
    assert (result.exit_code, "was made with another key than the one given" in result.stderr) == (1, True)
    result = ferry("sign", copy, "--key", other.private)
    assert (result.exit_code, "It is never overwritten: move" in result.stderr) == (1, True)
    result = ferry("check", copy, "--public-key", keys.public, "--signature", tmp_path / "none.sig")
    assert (result.exit_code, "there is no signature" in result.stderr) == (1, True)


def test_what_is_asked_wrongly_is_exit_code_2(copy: Path, keys: KeyPair, tmp_path: Path) -> None:
    for arguments, said in (
        (("check", copy, "--public-key", tmp_path / "none"), "can't be read: No such file or directory"),
        (("check", copy, "--public-key", keys.private), "is a private key, and whoever checks has the public one"),
        (("sign", copy, "--key", keys.public), "is a public key, and only the private one of it signs"),
        (("sign", copy), "Missing option '--key'"),
        (("check", copy, "--signature", "a.sig"), "--signature takes a --public-key to verify it with"),
        (("check", tmp_path / "none"), "does not exist"),
    ):
        result = ferry(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result
        assert said in result.stderr
        assert "Traceback" not in result.stderr


def test_password_comes_from_the_environment(copy: Path, tmp_path: Path) -> None:
    locked = make_keys(tmp_path, "locked", password=b"secret")
    result = ferry("sign", copy, "--key", locked.private)
    assert (result.exit_code, "password" in result.stderr.lower()) == (2, True)
    assert ferry("sign", copy, "--key", locked.private, FERRY_KEY_PASSWORD="secret").exit_code == 0
    assert ferry("check", copy, "--public-key", locked.public).exit_code == 0


@pytest.mark.parametrize("module", ["model_signing", "cryptography"])
def test_what_is_not_installed_is_named(
    copy: Path, keys: KeyPair, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = ferry("sign", copy, "--key", keys.private)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not installed. Install Ferry with its extra: .venv/bin/pip install -c constraints.txt" in result.stderr


def test_model_signings_own_command_verifies(copy: Path, keys: KeyPair) -> None:
    assert ferry("sign", copy, "--key", keys.private).exit_code == 0
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(copy), "--public_key", str(keys.public)]
    command += ["--signature", str(copy.parent / "small-1.0.0.sig")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (copy / "README.md").write_text("another")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_two_defaults_are_one() -> None:
    assert DEFAULT_MAX_SIZE * MIB == MAX_SIZE
