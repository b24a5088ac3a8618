"""Claims in files: a graph that was divided and compiled before is loaded instead.

Beside the saved network of each group (`Model.save`), a file in JSON has the nodes of the groups, and the reasons
against other nodes. The names of the files have the digest of the graph, the options and the backends, so that a change
of one of them stores other files.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from interposer._version import __version__
from interposer.bridges.claims import Claims, Group, claims
from interposer.bridges.litert.options import DelegateOptions
from interposer.bridges.litert.parts import InterpreterGraph
from interposer.bridges.options import REFERENCE
from interposer.core.errors import InterposerError
from interposer.core.files import write_file
from interposer.frontends.template import Template
from interposer.ir.network import Network
from interposer.session import Model, load
from interposer.session.network_entry import package_digest
from interposer.session.placement.origin import identity_of

__all__ = ["stored_claims"]

_log: Final = logging.getLogger("interposer.bridges")


def stored_claims(graph: InterpreterGraph, options: DelegateOptions) -> Claims:
    """Return what the backends of `options` take of a graph: from files if there are some, and else as `claims` does.

    New claims are stored if the options ask for it. A file that cannot be read or written is logged.

    Raises:
        InterposerError: the errors of `claims`.
    """
    base = options.stored_at(_digest(graph, options)) if options.stores else None
    known = None if base is None else _read(graph, options, base)
    if known is not None and not (options.strict and known.reasons):
        return known
    fresh_claims = claims(graph, options, graph.groups)
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
            group.model.save(_saved(base, number))
        write_file(_record(base), json.dumps(facts).encode())
    except (InterposerError, OSError) as error:
        _log.warning("the compiled network cannot be stored: %s", error)


def _read(graph: InterpreterGraph, options: DelegateOptions, base: Path) -> Claims | None:
    """Return the claims in the files that begin with `base`, or None if they are missing or not usable."""
    begin = perf_counter()
    if not _record(base).is_file():
        return None
    groups: list[Group] = []
    try:
        facts = json.loads(_record(base).read_bytes())
        members = [tuple(map(int, group)) for group in facts["groups"]]
        reasons = {int(n): tuple(map(str, texts)) for n, texts in facts["reasons"].items()}
        if sorted(map(sorted, graph.groups({n for group in members for n in group}))) != sorted(map(sorted, members)):
            return None  # this host divides graphs in another way
        groups += (_group(options, _saved(base, k), group) for k, group in enumerate(members, 1))
    except (InterposerError, OSError, ValueError, LookupError, TypeError) as error:
        _log.warning("the stored network cannot be used: %s", error)
        for group in groups:
            group.model.close()
        return None
    return Claims(graph, options.backends, tuple(groups), reasons, perf_counter() - begin)


def _group(options: DelegateOptions, path: Path, members: tuple[int, ...]) -> Group:
    begin = perf_counter()
    model = load(path, runtime=options.runtime())
    return Group(members, model, perf_counter() - begin, False, model.optimized, partial(_compiled, options))


def _compiled(options: DelegateOptions, source: Network | Template) -> Model:
    runtime = options.runtime()
    last_backends = (
        [REFERENCE] if REFERENCE not in options.backends and runtime.registry.is_available(REFERENCE) else []
    )
    return Model(source, runtime, [*options.backends, *last_backends], options.optimizer_options())


# --- the digest -------------------------------------------------------------------------------------------------------


def _digest(graph: InterpreterGraph, options: DelegateOptions) -> str:
    """Return a digest of all that the compiled groups of a graph follow from."""
    registry = options.runtime().registry
    digest = hashlib.sha256()
    backends = [str(identity_of(registry.get(name))) for name in options.backends]
    for fact in (__version__, package_digest(), backends, options.essence(), graph.outputs, *_facts(graph)):
        digest.update(repr(fact).encode())
    for data in graph.model.buffers:
        digest.update(b"" if data is None else data)
    return digest.hexdigest()[:32]


def _facts(graph: InterpreterGraph) -> Iterator[Any]:
    subgraph = graph.model.subgraphs[0]
    for operator in subgraph.operators:
        yield (
            operator.name, operator.version, operator.inputs, operator.outputs, operator.intermediates,
            sorted(operator.attributes.items()), bytes(operator.custom_options or b""),
        )  # fmt: skip
    yield from subgraph.tensors
