"""What a saved network says about itself: `describe` reads the index alone, and `check` verifies every byte."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from interposer.core.codec import info_from_plain
from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.saved.container import VERSION
from interposer.saved.documents import SavedFile, TrustedKeys, Variant, reading_facts
from interposer.saved.signing import is_signed

__all__ = ["SavedNetwork", "SavedVariant", "check", "describe"]


@dataclass(frozen=True)
class SavedVariant:
    """One variant in a saved network: it is optimized for certain shapes, backends and a kind of machine.

    `shapes` are those of the inputs by name. `backends` has the ids in order of preference, and `layers` the number of
    layers by backend. `fingerprints` has the text, by backend, that must be the same on the machine that uses its
    compiled parts; it is empty for a backend that offers none. `parts` has the number of compiled parts by backend,
    `compiled` how many of them are in the file, and `compiled_bytes` their size.
    """

    shapes: Mapping[str, tuple[int, ...]]
    backends: tuple[str, ...]
    layers: Mapping[str, int]
    versions: Mapping[str, str]
    fingerprints: Mapping[str, str]
    parts: Mapping[str, int]
    compiled: Mapping[str, int]
    compiled_bytes: Mapping[str, int]
    machine: str
    interposer: str


@dataclass(frozen=True)
class SavedNetwork:
    """The description of a saved network.

    `sizes` has the bytes of the sections by kind; ``"data"`` are constants and compiled parts. `key` is the public key
    with which the file is signed, in hexadecimal digits, or empty.
    """

    path: str
    format: int
    name: str
    size: int
    interposer: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo | None]
    signatures: tuple[str, ...]
    variants: tuple[SavedVariant, ...]
    sections: int
    sizes: Mapping[str, int]
    key: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON-compatible data."""
        output_texts = {name: None if info is None else str(info) for name, info in self.outputs.items()}
        return asdict(self) | {
            "inputs": {name: str(info) for name, info in self.inputs.items()},
            "outputs": output_texts,
            "variants": [asdict(variant) for variant in self.variants],
        }


def describe(path: str | os.PathLike[str] | bytes, trusted_keys: TrustedKeys | None = None) -> SavedNetwork:
    """Return what the index of a saved network says; nothing else of the file is read.

    Args:
        path: the path or the content of the file.
        trusted_keys: the path of a file with public keys, or several paths; the file must be signed with one of them.

    Raises:
        ParseError: the file cannot be read, is not a saved network, has another version, or its index is damaged.
        UntrustedFileError: no trusted key has signed the file.
    """
    return _described(SavedFile(path, trusted_keys))


def _described(file: SavedFile) -> SavedNetwork:
    index, sizes = file.index, Counter[str]()
    for section in file.sections:
        sizes[section.kind] += section.size
    plain_variants = [variant for variant in index["variants"] if isinstance(variant, dict)]
    with reading_facts(file.path):
        variants = tuple(_variant(*pair) for pair in zip(file.variants(), plain_variants, strict=True))
        inputs = {str(name): info_from_plain(info) for name, info in index["inputs"]}
        outputs = {str(name): info and info_from_plain(info) for name, info in index["outputs"]}
        return SavedNetwork(
            file.path or "", VERSION, str(index["name"]), file.size, str(index["interposer"]), inputs, outputs,
            tuple(map(str, index["signatures"])), variants, len(file.sections), dict(sizes), file.header.key.hex(),
        )  # fmt: skip


def _variant(variant: Variant, plain: Mapping[str, Any]) -> SavedVariant:
    return SavedVariant(
        variant.shapes, variant.preferences, {str(name): int(count) for name, count in plain["layers"].items()},
        {name: str(facts["version"]) for name, facts in variant.backends.items()},
        {name: str(facts["fingerprint"]) for name, facts in variant.backends.items()},
        variant.parts, variant.compiled,
        {str(name): int(facts["bytes"]) for name, facts in plain["parts"].items() if facts["bytes"]},
        str(plain["machine"]), variant.interposer,
    )  # fmt: skip


def check(path: str | os.PathLike[str] | bytes, trusted_keys: TrustedKeys | None = None) -> SavedNetwork:
    """Verify every byte of a saved network with SHA-256, and its signature if it has one; return its description.

    Without `trusted_keys`, a signature only shows that the file is as the owner of some key has signed it.

    Raises:
        ParseError: the file cannot be read, is not a saved network, has another version, or is damaged.
        UntrustedFileError: no trusted key has signed the file.
        MissingDependencyError: the file is signed, and the package cryptography is not installed.
    """
    file = SavedFile(path, trusted_keys)
    file.check()
    if file.header.signature and not is_signed(file.header):
        raise ParseError("the signature does not fit the content", path=file.path)
    for variant in file.variants():
        for number, kind in ((variant.section, "variant"), (variant.divided, "graph"), (variant.network, "graph")):
            if number is not None:
                file.facts(number, kind)
    return _described(file)
