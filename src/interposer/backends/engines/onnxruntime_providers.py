"""Which execution provider of ONNX Runtime got which nodes: ONNX Runtime says it since version 1.24."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

__all__ = ["provider_remark", "record_providers"]

_MOST_NAMES: Final = 5


def record_providers(settings: Any) -> None:
    """Let a session that is created with these `SessionOptions` keep which provider got which nodes."""
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")


def provider_remark(session: Any, provider: str, layers: Collection[str]) -> str:
    """Return a sentence that names the layers which `provider` left to other providers, at least in part.

    Empty if there are none, or if this version of ONNX Runtime does not say it. `layers` are the names of the layers
    from which the session's model was written: each node of the model is named after one of them.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return ""
    nodes = [
        (group.ep_name, node.name)
        for group in session.get_provider_graph_assignment_info()
        for node in group.get_nodes()
    ]
    other_nodes = [(owner, name) for owner, name in nodes if owner != provider]
    if not other_nodes:
        return ""
    num_taken, total = len(nodes) - len(other_nodes), len(nodes)
    owners = " and ".join(sorted({owner for owner, _ in other_nodes}))
    layers_left = list(dict.fromkeys(_layers_of((name for _, name in other_nodes), layers)))
    noun = "node" if total == 1 else "nodes"
    return f"{provider} runs {num_taken} of {total} {noun}; {owners} runs the rest{_listed(layers_left)}"


def _layers_of(nodes: Iterable[str], layers: Collection[str]) -> Iterator[str]:
    """Yield the layer from which each node was written; its name is the node's, or the node's up to a slash."""
    for node in nodes:
        name = node
        while name and name not in layers:
            name = name.rpartition("/")[0]
        if name:
            yield name


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    num_more = len(names) - _MOST_NAMES
    return f", of {', '.join(map(repr, names[:_MOST_NAMES]))}{f' and {num_more} more' if num_more > 0 else ''}"
