"""An open saved network: the container, its trust, and the facts of its variants."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

from interposer.core.errors import InterposerError, ParseError, UntrustedFileError
from interposer.core.ownership import why_untrusted
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.saved.container import Container
from interposer.saved.signing import SignedAs, check_trusted, public_keys

__all__ = ["SavedFile", "TrustedKeys", "Variant", "reading_facts"]

TrustedKeys = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | SignedAs


_WRONG: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


@contextmanager
def reading_facts(path: str | None) -> Iterator[None]:
    """Turn what reading damaged JSON data raises into a `ParseError`."""
    try:
        yield
    except InterposerError:
        raise
    except _WRONG as error:
        message = f"{type(error).__name__}: {error}"
        raise ParseError(f"the saved network is damaged: {message}", path=path) from error


class SavedFile(Container):
    """A saved network, from a path or from bytes.

    Args:
        source: the path or the content of the file.
        trusted_keys: the path of a file with public keys, or several paths, or a `SignedAs`. The file must be signed
            with one of them, and every section is then verified with SHA-256. None accepts any file.

    Raises:
        ParseError: the file cannot be read, has another version, or is damaged.
        UntrustedFileError: no trusted key has signed the file.
    """

    def __init__(self, source: Any, trusted_keys: TrustedKeys | None = None) -> None:
        keys = None if trusted_keys is None else public_keys(trusted_keys)
        super().__init__(source)
        if keys is not None:
            check_trusted(self, keys)
        if isinstance(trusted_keys, SignedAs):
            trusted_keys.check(self)
        self.strict = keys is not None
        with reading_facts(self.path):
            self._check_index(self.index)

    def check_owner(self) -> None:
        """Raise `UntrustedFileError` if no key was asked for and another user could have written the file.

        Its compiled parts are run as they are, so it is like a program.
        """
        problem = "" if self.strict or self.path is None else why_untrusted(self.path)
        if problem:
            raise UntrustedFileError(
                f"the saved network is not used without a signature, because another user could have written it: "
                f"{problem}; give trusted_keys=, or make a copy that belongs to you",
                path=self.path,
            )

    def _check_index(self, index: Mapping[str, Any]) -> None:
        for name, kind in (("name", str), ("interposer", str), ("inputs", list), ("outputs", list), ("needed", list),
                           ("usual", dict), ("signatures", dict), ("variants", list)):  # fmt: skip
            if not isinstance(index[name], kind):
                raise TypeError(f"{name!r} is {index[name]!r}")
        for signature_index in index["signatures"].values():
            self._check_index(signature_index)

    @property
    def title(self) -> str:
        """The path of the file, or the network's name."""
        return self.path or str(self.index["name"])

    def facts(self, number: Any, kind: str, *, strictly: bool = False) -> Any:
        """Return the JSON data of a section; see `Container.facts`."""
        return super().facts(number, kind, strictly=strictly or self.strict)

    def data(self, ref: Any, *, strictly: bool = False) -> Array:
        """Return the bytes at a place; see `Container.data`."""
        return super().data(ref, strictly=strictly or self.strict)

    def variants(self, index: Mapping[str, Any] | None = None) -> list[Variant]:
        """Return the variants of the network, or of a signature whose index is given.

        Raises:
            ParseError: their facts are damaged.
        """
        with reading_facts(self.path):
            return [
                Variant.of(self, plain_variant)
                for plain_variant in (self.index if index is None else index)["variants"]
            ]

    def metadata(self, number: Any) -> tuple[str, dict[str, bytes], dict[str, bytes]]:
        """Return the description, the entries and the files that the model file contained."""
        facts = self.facts(number, "metadata")
        with reading_facts(self.path):
            entries, files = (
                {str(name): base64.b64decode(encoded_text["bytes"]) for name, encoded_text in facts[key].items()}
                for key in ("entries", "files")
            )
            return str(facts["description"]), entries, files


@dataclass(frozen=True, eq=False)
class Variant:
    """The facts of a variant in the index of a file.

    `shapes` are those of the inputs by name, and `values` the fingerprints of inputs whose values decide the layers.
    `preferences` has the ids of the backends in order. `backends` describes those that run layers: their versions,
    fingerprints and kinds of memory. `compiled` has the number of compiled parts in the file by backend, and `parts`
    the number of all parts. `section`, `divided` and `network` are numbers of sections.
    """

    file: SavedFile
    shapes: Mapping[str, tuple[int, ...]]
    values: tuple[tuple[str, Any], ...]
    preferences: tuple[str, ...]
    backends: Mapping[str, Mapping[str, Any]]
    compiled: Mapping[str, int]
    parts: Mapping[str, int]
    interposer: str
    options: Mapping[str, Any] | None
    plan: str | None
    section: int
    divided: int
    network: int | None

    @classmethod
    def of(cls, file: SavedFile, plain: Mapping[str, Any]) -> Variant:
        """Return the variant that an index describes; raise KeyError, TypeError or ValueError if it is damaged."""
        backends = {str(name): dict(facts) for name, facts in plain["backends"].items()}
        for facts in backends.values():
            str(facts["version"]), str(facts["fingerprint"]), list(facts["memory"])
        options = plain["options"]
        if options is not None:
            dict(options["model_options"])
        return cls(
            file,
            {str(name): tuple(map(_size, shape)) for name, shape in plain["shapes"].items()},
            tuple((str(name), _value(value)) for name, value in plain["values"]),
            tuple(map(str, plain["preferences"])),
            backends,
            {str(name): int(facts["compiled"]) for name, facts in plain["parts"].items() if facts["compiled"]},
            {str(name): int(facts["parts"]) for name, facts in plain["parts"].items()},
            str(plain["interposer"]), options, None if plain["plan"] is None else str(plain["plan"]),
            plain["section"], plain["divided"], plain["network"],
        )  # fmt: skip

    @property
    def target(self) -> str:
        """A text that is equal for variants with the same backends, options and plan."""
        return json.dumps([self.preferences, self.options, self.plan], sort_keys=True)

    @property
    def model_options(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of the backends by id."""
        return {} if self.options is None else self.options["model_options"]

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The section of the variant: its graph, with compiled parts, and the records of the optimizer."""
        facts = self.file.facts(self.section, "variant")
        if not isinstance(facts, dict):
            raise ParseError("a variant is no JSON object", path=self.file.path)
        return facts


def _size(size: Any) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"a size is {size!r}")
    return size


def _value(plain: Any) -> Any:
    """Return the fingerprint of an input's value from its JSON-compatible form."""
    if isinstance(plain, dict):
        return base64.b64decode(plain["bytes"], validate=True)
    return tuple(map(_value, plain)) if isinstance(plain, list) else plain
