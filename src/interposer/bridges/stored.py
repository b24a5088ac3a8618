"""Claims in files: a graph that was divided and compiled before is loaded instead.

Beside the saved network of each group (`Model.save`), a file in JSON has the nodes of the groups, and the reasons
against other nodes. The names of the files have the digest of the graph, the options and the backends, so that a change
of one of them stores other files.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol

from interposer._version import __version__
from interposer.bridges.claims import Claims, Group, Grouping, HostGraph, claims, compiled
from interposer.bridges.options import BridgeOptions
from interposer.core.errors import InterposerError
from interposer.core.files import write_file
from interposer.session import load
from interposer.session.network_entry import package_digest
from interposer.session.placement.origin import identity_of

__all__ = ["stored_claims"]

_log: Final = logging.getLogger("interposer.bridges")


class StoredGraph(HostGraph, Protocol):
    """The graph of a host, as far as the names of files need it."""

    def facts(self) -> Iterable[Any]:
        """Return values whose texts differ for graphs that differ in anything but the data of constants."""

    def constants(self) -> Iterable[bytes | memoryview]:
        """Return the bytes of the constants."""


def stored_claims(graph: StoredGraph, options: BridgeOptions, grouped: Grouping | None = None) -> Claims:
    """Return what the backends of `options` take of a graph: from files if there are some, and else as `claims` does.

    New claims are stored if the options ask for it. A file that cannot be read or written is logged.

    Args:
        graph: the graph.
        options: what the user asks for.
        grouped: as for `claims`.

    Raises:
        InterposerError: the errors of `claims`.
    """
    base = options.stored_at(_digest(graph, options)) if options.stores else None
    known_claims = None if base is None else _read(graph, options, grouped, base)
    if known_claims is not None and not (options.strict and known_claims.reasons):
        return known_claims
    fresh_claims = claims(graph, options, grouped)
    if base is not None and options.writes_store:
        _write(fresh_claims, base)
    return fresh_claims


def _saved(base: Path, number: int) -> Path:
    return base.with_name(f"{base.name}.{number}.ipn")


def _record(base: Path) -> Path:
    return base.with_name(f"{base.name}.json")


def _write(claimed: Claims, base: Path) -> None:
    facts = {
        "groups": [list(group.members) for group in claimed.groups],
        "reasons": {str(n): list(texts) for n, texts in claimed.reasons.items()},
    }
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        for number, group in enumerate(claimed.groups, 1):
            group.model.save(_saved(base, number), shapes=[group.sample] if group.is_dynamic else None)
        write_file(_record(base), json.dumps(facts).encode())
    except (InterposerError, OSError) as error:
        _log.warning("the compiled network cannot be stored: %s", error)


def _read(graph: HostGraph, options: BridgeOptions, grouping: Grouping | None, base: Path) -> Claims | None:
    """Return the claims in the files that begin with `base`, or None if they are missing or not usable."""
    begin = perf_counter()
    if not _record(base).is_file():
        return None
    groups: list[Group] = []
    try:
        facts = json.loads(_record(base).read_bytes())
        members = [tuple(map(int, group)) for group in facts["groups"]]
        reasons = {int(n): tuple(map(str, texts)) for n, texts in facts["reasons"].items()}
        if grouping is not None and _sorted(grouping({n for group in members for n in group})) != _sorted(members):
            return None  # this host divides graphs in another way
        groups += (_group(graph, options, _saved(base, k), group) for k, group in enumerate(members, 1))
    except (InterposerError, OSError, ValueError, LookupError, TypeError) as error:
        _log.warning("the stored network cannot be used: %s", error)
        for group in groups:
            group.model.close()
        return None
    return Claims(graph, options.backends, tuple(groups), reasons, perf_counter() - begin)


def _sorted(groups: Iterable[Iterable[int]]) -> list[list[int]]:
    return sorted(map(sorted, groups))


def _group(graph: HostGraph, options: BridgeOptions, path: Path, members: tuple[int, ...]) -> Group:
    begin = perf_counter()
    model = load(path, runtime=options.runtime())
    again = partial(compiled, options=options, nodes=graph.nodes)
    is_dynamic = not all(info.is_concrete for info in model.inputs.values())
    return Group(members, model, perf_counter() - begin, is_dynamic, model.optimized, again)


# --- the digest -------------------------------------------------------------------------------------------------------


def _digest(graph: StoredGraph, options: BridgeOptions) -> str:
    """Return a digest of all that the compiled groups of a graph follow from."""
    identities = [_identity(options, name) for name in options.backends]
    digest = hashlib.sha256()
    for fact in (__version__, package_digest(), identities, options.essence(), graph.outputs, *graph.facts()):
        digest.update(repr(fact).encode())
    for constant_bytes in graph.constants():
        digest.update(constant_bytes)
    return digest.hexdigest()[:32]


def _identity(options: BridgeOptions, name: str) -> str:
    """Return the version and the build of a backend, or why it is not available."""
    try:
        backend = options.runtime().registry.get(name)
    except InterposerError as error:
        return str(error)
    return f"{backend.version} {identity_of(backend)}"
