"""Ed25519 signatures of saved networks, with the package cryptography; keys are files in the format PEM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, MissingDependencyError, UntrustedFileError
from interposer.core.files import check_regular, reason_of
from interposer.core.records import dataclass
from interposer.saved.container import Container, Header

__all__ = ["SIGNED_AS", "SignedAs", "check_signature", "check_trusted", "facts_of", "public_keys", "signed"]

SIGNED_AS: Final = "signed_as"
"""The member of the index with the name and the version that the file is signed for."""
_BEGIN: Final = b"-----BEGIN PUBLIC KEY-----"
_END: Final = b"-----END PUBLIC KEY-----"


@dataclass(frozen=True, slots=True)
class SignedAs:
    """Trusted keys, and the name and the version for which they must have signed a saved network.

    A signature without a name fits every model, so that somebody who can replace files could serve a signed network in
    the place of another one, or an old version in the place of a new one.

    Args:
        keys: the path of a PEM file with public Ed25519 keys, or several paths.
        name: the name that the file must be signed for.
        least_version: the lowest version that is accepted; None accepts any, and files without a version.
        version: the version that the file must be signed for; None accepts any.
    """

    keys: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    name: str
    least_version: int | None = None
    version: int | None = None

    def __iter__(self) -> Iterator[str | os.PathLike[str]]:
        """Yield the paths of the files with keys."""
        return iter([self.keys] if isinstance(self.keys, str | os.PathLike) else self.keys)

    def check(self, file: Container) -> None:
        """Raise `UntrustedFileError` if a file, whose signature is valid, was signed for something else."""
        facts = file.index.get(SIGNED_AS) or {}
        name, version = facts.get("name"), facts.get("version")
        if name != self.name:
            signed_for = "no name" if name is None else repr(name)
            raise UntrustedFileError(
                f"the saved network is signed for {signed_for}, and is used as {self.name!r}", path=file.path
            )
        if self.version is not None and version != self.version:
            raise UntrustedFileError(
                f"the saved network is signed for version {version}, and is used as version {self.version}",
                path=file.path,
            )
        if self.least_version is not None and (version is None or version < self.least_version):
            raise UntrustedFileError(
                f"the saved network is signed for version {version}; the lowest that is accepted is "
                f"{self.least_version}", path=file.path,
            )  # fmt: skip


def facts_of(sign_as: str | None, key: object) -> dict[str, Any]:
    """Return the facts for the index about the name and the version that a file is signed for.

    Args:
        sign_as: ``NAME`` or ``NAME:VERSION``; None for neither.
        key: the file of the private key.

    Raises:
        InvalidArgumentError: the text has another form, or there is no key.
    """
    if sign_as is None:
        return {}
    if key is None:
        raise InvalidArgumentError("sign_as is what a file is signed for; it needs sign_key")
    name, _, version = sign_as.partition(":")
    if not name or not (version.isascii() and version.isdecimal() and len(version) < 19) and ":" in sign_as:
        raise InvalidArgumentError(f"sign_as must be a name, or a name and a version such as digits:7, not {sign_as!r}")
    return {SIGNED_AS: {"name": name, "version": int(version) if version else None}}


def _package(name: str) -> Any:
    """Return a module of cryptography; raise `MissingDependencyError` if it is not installed."""
    from importlib import import_module  # noqa: PLC0415 - only with keys

    try:
        return import_module(f"cryptography.{name}")
    except ImportError as error:
        raise MissingDependencyError("cryptography", "sign", "signing saved networks") from error


def signed(key: str | os.PathLike[str] | None) -> Callable[[Header], Header]:
    """Return a function that adds the signature of a private key to a header; without a key, it changes nothing.

    Raises:
        InvalidArgumentError: the file has no private Ed25519 key, or needs a passphrase.
        MissingDependencyError: the package cryptography is not installed.
    """
    if key is None:
        return lambda header: header
    secret = _private_key(key)
    public_key = secret.public_key().public_bytes_raw()
    return lambda header: replace(header, key=public_key, signature=secret.sign(header.message(public_key)))


def _private_key(path: str | os.PathLike[str]) -> Any:
    serialization = _package("hazmat.primitives.serialization")
    ed25519 = _package("hazmat.primitives.asymmetric.ed25519")
    content = _content(path, "the signing key")
    try:
        key = serialization.load_pem_private_key(content, None)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: the signing key has a passphrase; give a file with a key without one"
        ) from error
    except Exception as error:  # the package documents several, and not all
        raise InvalidArgumentError(f"{os.fspath(path)}: it is no private key in the format PEM") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InvalidArgumentError(
            f"{os.fspath(path)}: expected an Ed25519 key, as `openssl genpkey -algorithm ed25519` creates"
        )
    return key


def _content(path: str | os.PathLike[str], description: str) -> bytes:
    try:
        check_regular(path)
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except (OSError, ValueError, TypeError) as error:
        reason = reason_of(error) if isinstance(error, OSError | ValueError) else str(error)
        raise InvalidArgumentError(f"{path}: {description} cannot be read: {reason}") from error


def public_keys(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> dict[bytes, str]:
    """Return the public Ed25519 keys in these files in the format PEM, with the path of each.

    Raises:
        InvalidArgumentError: a file cannot be read, has no key or one of another kind, or there are no files.
        MissingDependencyError: the package cryptography is not installed.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files:
        raise InvalidArgumentError("trusted_keys names no file; give files with public keys, or None to trust any file")
    return {key: os.fspath(path) for path in files for key in _keys_in(path)}


def _keys_in(path: str | os.PathLike[str]) -> list[bytes]:
    serialization = _package("hazmat.primitives.serialization")
    ed25519 = _package("hazmat.primitives.asymmetric.ed25519")
    content = _content(path, "the trusted key")
    pieces = [piece for piece in content.split(_END) if _BEGIN in piece]
    if not pieces:
        raise InvalidArgumentError(f"{os.fspath(path)}: it has no public key in the format PEM")
    keys = []
    for piece in pieces:
        try:
            key = serialization.load_pem_public_key(piece[piece.index(_BEGIN) :] + _END + b"\n")
        except Exception as error:  # the package documents several, and not all
            raise InvalidArgumentError(f"{os.fspath(path)}: it has a damaged public key") from error
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise InvalidArgumentError(f"{os.fspath(path)}: it has a public key of another kind than Ed25519")
        keys.append(key.public_bytes_raw())
    return keys


def check_trusted(file: Container, keys: dict[bytes, str]) -> None:
    """Raise `UntrustedFileError` unless one of these public keys has signed the file.

    The signature covers the index. The index has the SHA-256 of every section, which must be verified when it is read.
    """
    header = file.header
    if not header.signature:
        raise UntrustedFileError("the saved network is not signed, and only signed ones are trusted", path=file.path)
    if header.key not in keys:
        raise UntrustedFileError(
            f"the saved network is signed with the key {header.key.hex()}, which is not among the trusted keys",
            path=file.path,
        )
    if not is_signed(header):
        raise UntrustedFileError(
            "the signature does not fit the content: the file was changed after it was signed", path=file.path
        )


def check_signature(content: bytes, signature: bytes, keys: dict[bytes, str], path: str) -> None:
    """Raise `UntrustedFileError` unless one of these public keys has made the signature of a file's content.

    Such signatures are files of their own, as ``openssl pkeyutl -sign -rawin`` writes them.
    """
    if not any(_fits(key, signature, content) for key in keys):
        raise UntrustedFileError("none of the trusted keys has signed the file as it is", path=path)


def is_signed(header: Header) -> bool:
    """Return True if the signature in a header fits the header, and so the index."""
    return _fits(header.key, header.signature, header.message(header.key))


def _fits(key: bytes, signature: bytes, content: bytes) -> bool:
    """Return True if a public key has made a signature of some content."""
    ed25519 = _package("hazmat.primitives.asymmetric.ed25519")
    invalid_signature_error = _package("exceptions").InvalidSignature
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (invalid_signature_error, ValueError):
        return False
    return True
