"""Signing an artifact by OpenSSF model-signing, with an elliptic-curve key; its own bytes stay as they are."""

import tempfile
from pathlib import Path

from export.artifact.archive import top_folder
from export.artifact.check import check_artifact, digests_of
from export.artifact.layout import ArtifactError
from export.artifact.limits import MAX_SIZE
from export.artifact.load import open_artifact
from export.artifact.signature import INSTALL, check_signature, load_private_key, signature_path
from export.files import new_file


def sign_artifact(path: Path, key: Path, *, password: str | None = None, max_size: int = MAX_SIZE) -> tuple[Path, bool]:
    """Check an artifact, its folder or its tar, and write its signature beside it.

    Args:
        path: the folder or the tar.
        key: the private key, a file in PEM.
        password: of the key, if it has one.
        max_size: how many bytes the artifact may have.

    Returns:
        The signature's file, and whether it was there already, by this key and about these files.

    Raises:
        ValueError: if model-signing is missing, or `key` is no private key on a curve of NIST's.
        ArtifactError: if the artifact is not sound, or a signature by another key, or about other files, is there.
    """
    try:
        from model_signing import hashing, signing
    except ImportError:
        raise ValueError(f"model-signing {INSTALL}") from None
    public_key = load_private_key(key, password).public_key()
    manifest = check_artifact(path, max_size=max_size)
    artifact = open_artifact(path, max_size)
    if artifact.manifest != manifest:
        raise ArtifactError([f"{path} was changed while it was checked. Sign again."])
    target = signature_path(path, manifest)
    digests = digests_of(artifact)
    if target.exists():
        problems = check_signature(target, public_key, digests)
        if problems:
            raise ArtifactError([*problems, f"It is never overwritten: move {target} away, and sign again."])
        return target, True
    with tempfile.TemporaryDirectory() as scratch, new_file(target) as new:
        # model-signing reads files: these are the bytes that were checked, each against its hash.
        folder = Path(scratch) / top_folder(manifest["name"], manifest["version"])
        folder.mkdir()
        for name in digests:
            (folder / name).write_bytes(artifact.source.read(name))
        config = signing.Config()  # type: ignore[no-untyped-call]
        # The password is declared as text, but handed to a function that takes bytes.
        secret = None if password is None else password.encode()
        config.use_elliptic_key_signer(private_key=key, password=secret)  # type: ignore[arg-type]
        # Every file is signed; by default those of git would be left out.
        everything = hashing.Config().set_ignored_paths(paths=[], ignore_git_paths=False)  # type: ignore[no-untyped-call]
        config.set_hashing_config(everything)
        config.sign(folder, new)
        problems = check_signature(new, public_key, digests)
        if problems:
            raise ArtifactError([f"{path} was changed while it was signed. Sign again.", *problems])
    return target, False
