"""Signatures for a name and a version: a signed file cannot take the place of another model, or of a newer version."""

from __future__ import annotations

from pathlib import Path

import pytest

from interposer import load
from interposer.errors import InvalidArgumentError, ParseError, UntrustedFileError
from interposer.saved import SignedAs
from interposer.serving.folder import ModelSettings, found_in
from interposer.serving.loading import Loader
from tests.serving.running import doubler

pytest.importorskip("cryptography", reason="the package cryptography is not installed")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = tmp_path_factory.mktemp("keys")
    secret = Ed25519PrivateKey.generate()
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "secret.pem").write_bytes(secret.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public = secret.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "public.pem").write_bytes(public)
    return folder / "secret.pem", folder / "public.pem"


def signed(path: Path, key: Path, sign_as: str | None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with load(doubler(shape=(1, 4)), ["CpuRef"]) as model:
        model.save(path, sign_key=key, sign_as=sign_as)
    return path


@pytest.mark.parametrize(
    ("sign_as", "name", "least", "version", "problem"),
    [
        ("digits:7", "digits", None, None, None),
        ("digits:7", "digits", 7, None, None),
        ("digits:7", "digits", 7, 7, None),
        ("digits", "digits", None, None, None),
        ("digits:7", "letters", None, None, "is signed for 'digits', and is used as 'letters'"),
        (None, "digits", None, None, "is signed for no name, and is used as 'digits'"),
        ("digits:7", "digits", 8, None, "is signed for version 7; the lowest that is accepted is 8"),
        ("digits", "digits", 1, None, "is signed for version None; the lowest that is accepted is 1"),
        ("digits:7", "digits", None, 8, "is signed for version 7, and is used as version 8"),
    ],
)
def test_a_file_is_loaded_as_what_it_was_signed_for(tmp_path, keys, sign_as, name, least, version, problem):
    path = signed(tmp_path / "net.ipn", keys[0], sign_as)
    trusted = SignedAs(keys[1], name, least, version)
    if problem is None:
        load(path, ["CpuRef"], trusted_keys=trusted).close()
        return
    with pytest.raises(UntrustedFileError, match=problem):
        load(path, ["CpuRef"], trusted_keys=trusted)
    load(path, ["CpuRef"], trusted_keys=keys[1]).close()


def test_a_name_that_was_changed_after_signing_is_noticed(tmp_path, keys):
    path = signed(tmp_path / "net.ipn", keys[0], "digits:7")
    content = path.read_bytes()
    assert content.count(b'"version": 7') + content.count(b'"version":7') == 1
    path.write_bytes(content.replace(b'"version": 7', b'"version": 9').replace(b'"version":7', b'"version":9'))
    with pytest.raises(ParseError):
        load(path, ["CpuRef"], trusted_keys=SignedAs(keys[1], "digits", 8))


@pytest.mark.parametrize("text", ["", ":1", "digits:", "digits:x", "digits:-1"])
def test_a_text_that_is_no_name_with_a_version_is_refused(tmp_path, keys, text):
    with pytest.raises(InvalidArgumentError, match="sign_as must be a name"):
        signed(tmp_path / "net.ipn", keys[0], text)


def test_a_name_needs_a_key(tmp_path):
    with load(doubler(shape=(1, 4)), ["CpuRef"]) as model, pytest.raises(InvalidArgumentError, match="needs sign_key"):
        model.save(tmp_path / "net.ipn", sign_as="digits")


def test_a_server_loads_models_under_the_names_that_were_signed(tmp_path, keys):
    signed(tmp_path / "digits" / "7" / "model.ipn", keys[0], "digits:7")
    signed(tmp_path / "digits" / "8" / "model.ipn", keys[0], "digits:7")  # an old version in the place of a new one
    signed(tmp_path / "letters.ipn", keys[0], "letters:3")
    (tmp_path / "digits.toml").write_text('versions = "all"')
    settings = ModelSettings(backends=("CpuRef",), trusted_keys=(str(keys[1]),), signed_names=True)
    loader = Loader()
    results = {}
    for source in found_in(str(tmp_path), settings):
        try:
            loader(source).model.close()
            results[source.name, source.version] = ""
        except UntrustedFileError as error:
            results[source.name, source.version] = str(error).partition(": ")[2]
    assert results == {
        ("digits", "7"): "",
        ("digits", "8"): "the saved network is signed for version 7, and is used as version 8",
        ("letters", "1"): "",
    }
    loader.close()
