"""Signed saved networks: only those of a trusted key are loaded."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import interposer as ip
from interposer.core.cache import settle
from interposer.core.errors import InvalidArgumentError, ParseError, UntrustedFileError
from tests.saved.rewriting import mixed

pytest.importorskip("cryptography", reason="the package cryptography (the extra sign) is not installed")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

pytestmark = pytest.mark.needs_cpuref
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
_PEM = serialization.Encoding.PEM
_SECRET = serialization.PrivateFormat.PKCS8
_PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo


def written(folder: Path, name: str, key: Any) -> tuple[Path, Path]:
    """Write a private key and its public key to two files."""
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    secret.write_bytes(key.private_bytes(_PEM, _SECRET, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(_PEM, _PUBLIC))
    return secret, public


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("signed")
    secret, public = written(folder, "mine", ed25519.Ed25519PrivateKey.generate())
    _, other = written(folder, "other", ed25519.Ed25519PrivateKey.generate())
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(folder / "signed.ipn", sign_key=secret)
        model.save(folder / "plain.ipn")
    names = {"secret": secret, "public": public, "other": other, "folder": folder}
    return names | {name: folder / f"{name}.ipn" for name in ("signed", "plain")}


def test_a_file_of_a_trusted_key_is_loaded(files: dict[str, Path]) -> None:
    with ip.load(files["signed"], trusted_keys=[files["other"], files["public"]]) as model:
        assert model.name == "mixed"
    assert ip.saved.check(files["signed"], files["public"]).key


def test_one_file_may_have_several_keys(files: dict[str, Path], tmp_path: Path) -> None:
    both = tmp_path / "keys.pem"
    both.write_bytes(b"# a comment\n" + files["other"].read_bytes() + files["public"].read_bytes())
    assert ip.saved.describe(files["signed"], both).name == "mixed"


def test_a_file_without_a_signature_is_refused(files: dict[str, Path]) -> None:
    with pytest.raises(UntrustedFileError) as caught:
        ip.load(files["plain"], trusted_keys=files["public"])
    assert str(caught.value) == (f"{files['plain']}: the saved network is not signed, and only signed ones are trusted")


def test_a_file_of_an_unknown_key_is_refused(files: dict[str, Path]) -> None:
    key = ip.saved.describe(files["signed"]).key
    with pytest.raises(UntrustedFileError) as caught:
        ip.load(files["signed"], trusted_keys=files["other"])
    assert str(caught.value) == (
        f"{files['signed']}: the saved network is signed with the key {key}, which is not among the trusted keys"
    )


def test_a_changed_index_is_noticed_by_the_signature(files: dict[str, Path], tmp_path: Path) -> None:
    """The header and the index of another network, with the signature of the first one."""
    signed, plain = files["signed"].read_bytes(), bytearray(files["plain"].read_bytes())
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.optimized.save(tmp_path / "another.ipn")
    plain[:] = (tmp_path / "another.ipn").read_bytes()
    plain[72:176] = signed[72:176]
    (tmp_path / "forged.ipn").write_bytes(plain)
    with pytest.raises(UntrustedFileError) as caught:
        ip.load(tmp_path / "forged.ipn", trusted_keys=files["public"])
    assert str(caught.value) == (
        f"{tmp_path / 'forged.ipn'}: the signature does not fit the content: the file was changed after it was signed"
    )
    with pytest.raises(ParseError, match="the signature does not fit the content"):
        ip.saved.check(tmp_path / "forged.ipn")


def test_a_changed_section_is_noticed_by_its_sha256(files: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(files["signed"].read_bytes())
    offset = struct.unpack_from("<Q", data, 16)[0]
    data[offset - 200] ^= 1
    (tmp_path / "changed.ipn").write_bytes(data)
    with pytest.raises(ParseError, match="its checksum is wrong"):
        ip.load(tmp_path / "changed.ipn", trusted_keys=files["public"])


def test_other_sources_have_no_signature(files: dict[str, Path]) -> None:
    with pytest.raises(InvalidArgumentError, match="trusted_keys= is for saved networks; a Network has no signature"):
        ip.load(mixed(), trusted_keys=files["public"])
    with pytest.raises(InvalidArgumentError, match="trusted_keys= is for saved networks; .* is a model of format"):
        ip.load(b"graph {}", format="text", trusted_keys=files["public"])


@pytest.mark.usefixtures("cpuacc")
def test_the_network_cache_does_not_make_an_unsigned_file_trusted(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    ip.load(DIGITS, ["CpuAcc"]).close()
    settle()
    ip.load(files["signed"], ["CpuAcc", "CpuRef"], trusted_keys=files["public"]).close()
    settle()
    with pytest.raises(InvalidArgumentError, match="trusted_keys= is for saved networks; .* is a model of format"):
        ip.load(DIGITS, ["CpuAcc"], trusted_keys=files["public"])
    with pytest.raises(UntrustedFileError, match="which is not among the trusted keys"):
        ip.load(files["signed"], ["CpuAcc", "CpuRef"], trusted_keys=files["other"])


def test_keys_that_cannot_be_used_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    elliptic, curve = written(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    absent = tmp_path / "absent.pem"
    with ip.load(mixed(), ["CpuRef"]) as model:
        with pytest.raises(InvalidArgumentError, match="expected an Ed25519 key"):
            model.save(tmp_path / "net.ipn", sign_key=elliptic)
        with pytest.raises(InvalidArgumentError, match="it is no private key in the format PEM"):
            model.save(tmp_path / "net.ipn", sign_key=files["public"])
        with pytest.raises(InvalidArgumentError, match="the signing key cannot be read: No such file"):
            model.save(tmp_path / "net.ipn", sign_key=absent)
    assert not (tmp_path / "net.ipn").exists()
    for key, message in (
        (curve, "it has a public key of another kind than Ed25519"),
        (files["plain"], "it has no public key in the format PEM"),
        (absent, "the trusted key cannot be read"),
        ([], "trusted_keys names no file"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            ip.load(files["signed"], trusted_keys=key)
