"""The signature of an artifact: an OpenSSF model-signing bundle by an elliptic-curve key, `<name>-<version>.sig`.

It stands beside the folder and the tar and is about both, for it signs the names and SHA-256 of the files that either
holds. (DSSE envelope: https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md; statement: in-toto v1.) It is
verified here and not by model-signing, because that reads files from a disk, and here the bytes that are judged count.
"""

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from export.artifact.archive import top_folder
from export.artifact.layout import ArtifactError
from export.files import parse_json, read_regular_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

SUFFIX = ".sig"
# An artifact has a score of files, and each takes about 300 bytes of a bundle.
_MAX_SIZE = 2**20
_MAX_KEY_SIZE = 2**16

_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"

# The curves that model-signing knows, each with the hash that goes with it.
_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
INSTALL = "is not installed. Install Ferry with its extra: .venv/bin/pip install -c constraints.txt -e '.[sign]'"


class Bundle(NamedTuple):
    """What a signature file holds: the fingerprint of the key, the signed statement, and the signature of it."""

    fingerprint: str
    payload: bytes
    signature: bytes


def signature_path(path: Path, manifest: Mapping[str, Any]) -> Path:
    """Return where the signature of a folder or tar is looked for: beside it, named as the manifest says."""
    return Path(os.path.realpath(path)).parent / (top_folder(manifest["name"], manifest["version"]) + SUFFIX)


def load_public_key(file: Path) -> "EllipticCurvePublicKey":
    """Read a public key in PEM.

    Raises:
        ValueError: if `cryptography` is missing, or the file is not such a key on a curve of NIST's.
    """
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = read_key(file)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        if b"PRIVATE KEY-----" in data:
            raise ValueError(f"{file} is a private key, and whoever checks has the public one of it.") from None
        raise ValueError(f"{file} is not a public key in PEM: {_first_sentence(error)}") from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError(_wrong_curve(file, type(key).__name__))
    return _known_curve(key, file)


def load_private_key(file: Path, password: str | None) -> "EllipticCurvePrivateKey":
    """Read a private key in PEM; the errors are those of `load_public_key`."""
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_key(file)
    try:
        key = load_pem_private_key(data, None if password is None else password.encode())
    except TypeError as error:
        # The library says of a password that is missing, or not needed, that its type is wrong.
        raise ValueError(f"{file}: {_first_sentence(error)}") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        if b"PUBLIC KEY-----" in data:
            raise ValueError(f"{file} is a public key, and only the private one of it signs.") from None
        raise ValueError(
            f"{file} is not a private key in PEM, or its password is wrong: {_first_sentence(error)}"
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(_wrong_curve(file, type(key).__name__))
    _known_curve(key.public_key(), file)
    return key


def read_key(file: Path) -> bytes:
    """Read a key's file.

    Raises:
        ValueError: if it can't be read, is no file, or is larger than any key.
    """
    try:
        data = read_regular_file(file, _MAX_KEY_SIZE)
    except OSError as error:
        raise ValueError(f"the key {file} can't be read: {error.strerror}.") from None
    if len(data) > _MAX_KEY_SIZE:
        raise ValueError(f"the key {file} has more than {_MAX_KEY_SIZE:,} bytes; a key in PEM has a few hundred.")
    return data


def read_bundle(file: Path) -> Bundle:
    """Read a signature file.

    Raises:
        ArtifactError: if there is none, or it is damaged or of another kind.
    """
    try:
        data = read_regular_file(file, _MAX_SIZE)
    except FileNotFoundError:
        raise ArtifactError([f"there is no signature {file}. Fetch it, or name it with --signature."]) from None
    except OSError as error:
        raise ArtifactError([f"the signature {file} can't be read: {error.strerror}."]) from None
    try:
        if len(data) > _MAX_SIZE:
            raise ValueError(f"it has more than {_MAX_SIZE:,} bytes")
        document = parse_json(data)
        envelope = document["dsseEnvelope"]
        if (document["mediaType"], envelope["payloadType"]) != (_BUNDLE, _PAYLOAD):
            raise ValueError("it is a bundle of another kind")
        (signature,) = envelope["signatures"]
        return Bundle(
            fingerprint=document["verificationMaterial"]["publicKey"]["hint"],
            payload=base64.b64decode(envelope["payload"], validate=True),
            signature=base64.b64decode(signature["sig"], validate=True),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(
            [f"{file} is damaged, or is no signature of model-signing with a key pair ({error!r}). Fetch it again."]
        ) from None


def check_signature(file: Path, key: "EllipticCurvePublicKey", digests: Mapping[str, str]) -> list[str]:
    """Check that a signature is by a key and about the files, and return what is wrong.

    Args:
        file: the signature.
        key: the public key, from somebody whom one trusts, and never from where the artifact comes.
        digests: the SHA-256 of every file of the artifact, by name.
    """
    try:
        bundle = read_bundle(file)
        _verify(bundle, key, file)
        signed = _signed_digests(bundle.payload, file)
    except ArtifactError as error:
        return error.problems
    others = sorted(ascii(name) for name in signed.keys() | digests.keys() if signed.get(name) != digests.get(name))
    if not others:
        return []
    return [
        f"{file} is by this key, but about other files than these: it was made for another artifact, or they were "
        f"changed: {', '.join(others)}."
    ]


def _verify(bundle: Bundle, key: "EllipticCurvePublicKey", file: Path) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if bundle.fingerprint != hashlib.sha256(pem).hexdigest():
        raise ArtifactError([f"{file} was made with another key than the one given."])
    signed = b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD), _PAYLOAD.encode(), len(bundle.payload), bundle.payload)
    try:
        key.verify(bundle.signature, signed, ECDSA(getattr(hashes, _HASHES[key.curve.name])()))
    except InvalidSignature:
        raise ArtifactError([f"{file} is not a signature by the key given: it was forged or damaged."]) from None


def _signed_digests(payload: bytes, file: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a signed statement is about, by name."""
    try:
        statement = parse_json(payload)
        predicate = statement["predicate"]
        if (statement["_type"], statement["predicateType"]) != (_STATEMENT, _PREDICATE):
            raise ValueError("another kind of statement")
        if predicate["serialization"]["method"] != "files":
            raise ValueError("files signed in pieces")
        return _digests_by_name(predicate["resources"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError([f"{file} signs something that Ferry does not know ({error!r}). Sign again."]) from None


def _digests_by_name(resources: list[dict[str, Any]]) -> dict[str, str]:
    signed: dict[str, str] = {}
    for resource in resources:
        name, digest = resource["name"], resource["digest"]
        if not isinstance(name, str):
            raise ValueError(f"a file's name that is no text: {name!a}")
        if name in signed:
            raise ValueError(f"the file {name!a} twice")
        if resource["algorithm"] != "sha256":
            raise ValueError("another hash than SHA-256")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ValueError(f"{digest!a} as the SHA-256 of {name!a}")
        signed[name] = digest
    return signed


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ValueError(f"cryptography, which signatures need, {INSTALL}") from None


def _known_curve(key: "EllipticCurvePublicKey", file: Path) -> "EllipticCurvePublicKey":
    if key.curve.name not in _HASHES:
        raise ValueError(_wrong_curve(file, key.curve.name))
    return key


def _wrong_curve(file: Path, got: str) -> str:
    return (
        f"the key {file} must be on one of the curves {', '.join(_HASHES)}; got {got}. "
        "Make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem"
    )


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0].rstrip(".") + "."
