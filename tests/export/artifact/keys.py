"""Elliptic-curve key pairs in PEM, made for a test."""

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

CURVES = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1, "secp256k1": ec.SECP256K1}


class KeyPair(NamedTuple):
    """The files of a key pair."""

    private: Path
    public: Path


def make_keys(folder: Path, name: str = "key", *, curve: str = "P-256", password: bytes = b"") -> KeyPair:
    key = ed25519.Ed25519PrivateKey.generate() if curve == "ed25519" else ec.generate_private_key(CURVES[curve]())
    pair = KeyPair(folder / f"{name}.pem", folder / f"{name}.pub")
    locked = BestAvailableEncryption(password) if password else NoEncryption()
    pair.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    pair.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return pair
