"""Context nodes: nodes of ONNX files that have a compiled group as a saved network, so that a session need not compile.

With the option ``ep.context_enable`` of a session, ONNX Runtime writes a file in which a node ``EPContext`` stands for
each group. The network is in an attribute of the node, or in a file beside the model.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

from interposer._version import __version__
from interposer.bridges.claims import Group, compiled
from interposer.bridges.onnxruntime.abi import OrtApi
from interposer.bridges.options import REFERENCE, BridgeOptions
from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.core.files import write_file
from interposer.core.records import dataclass
from interposer.session import Model, load
from interposer.session.placement.origin import identity_of

__all__ = ["ContextOptions", "is_context", "read_context", "source_of", "write_context"]

_OPERATOR: Final = ("com.microsoft", "EPContext")
_INT, _STRING = 1, 5
_LARGEST: Final = 2**31 - 1
_RENEW: Final = "compile the original model again"


@dataclass(frozen=True)
class ContextOptions:
    """What a session asks about context nodes.

    Args:
        provider: the name of the provider, which uses only its own context nodes.
        path: the path of the file that ONNX Runtime writes or that the session names; empty for none.
        embeds: write networks into the nodes, and not into files beside the model.
        writes: True if ONNX Runtime writes a file with context nodes.
        compiles: False if the session must not compile anything again.
    """

    provider: str
    path: str = ""
    embeds: bool = False
    writes: bool = False
    compiles: bool = True

    @classmethod
    def of(cls, provider: str, entries: Mapping[str, str]) -> ContextOptions:
        """Return the options in the configuration of a session."""
        return cls(
            provider,
            entries.get("ep.context_file_path", ""),
            entries.get("ep.context_embed_mode", "0") == "1",
            entries.get("ep.context_enable", "0") == "1",
            entries.get("session.disable_model_compile", "0") != "1",
        )

    def folder(self, model_path: str) -> Path:
        """Return the folder of the model with context nodes; raise `InvalidArgumentError` if it has no path."""
        path = self.path or model_path
        if not path:
            raise InvalidArgumentError(
                "the model has no path, so that its network cannot be in a file beside it; set ep.context_file_path, "
                "or set ep.context_embed_mode to 1 for a network in the model"
            )
        return Path(path).parent


def is_context(domain: str, operator: str) -> bool:
    """Return True for the operator of context nodes."""
    return (domain, operator) == _OPERATOR


def _attributes(api: OrtApi, node: int) -> dict[str, int]:
    return {api.text("OpAttr_GetName", address): address for address in api.listed(node, "Node.Attributes") if address}


def _bytes(api: OrtApi, node: int, name: str) -> bytes:
    attribute = _attributes(api, node).get(name)
    if attribute is None or api.number("OpAttr_GetType", attribute, ctypes.c_int32) != _STRING:
        return b""
    return api.attribute(attribute, _STRING, None)


def _number(api: OrtApi, node: int, name: str, default: int) -> int:
    attribute = _attributes(api, node).get(name)
    if attribute is None or api.number("OpAttr_GetType", attribute, ctypes.c_int32) != _INT:
        return default
    return int.from_bytes(api.attribute(attribute, _INT, ctypes.c_int64), "little", signed=True)


def source_of(api: OrtApi, node: int) -> str:
    """Return the name of the provider that made a context node."""
    return _bytes(api, node, "source").decode("utf-8", "replace")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_context(
    api: OrtApi,
    node: tuple[int, int, str],
    names: tuple[Sequence[str], Sequence[str]],
    dtypes: Callable[[], Mapping[str, np.dtype[Any]]],
    model_path: str,
    context: ContextOptions,
    options: BridgeOptions,
) -> Group:
    """Return the group of a context node.

    Args:
        api: the functions of ONNX Runtime.
        node: the index, the address and the name of the node.
        names: the names of its inputs and of its outputs.
        dtypes: returns the types of these values by name.
        model_path: the path of the model; empty for none.
        context: what the session asks about context nodes.
        options: the options of the provider.

    Raises:
        InvalidArgumentError: the network is damaged, or is for another version of Interposer or of a backend, for
            other backends than those of the options, or for another node; or it does not fit this machine, and the
            session must not compile it again.
    """
    index, address, name = node
    begin = perf_counter()
    try:
        _check_origin(_bytes(api, address, "notes"), options)
        model = load(_content(api, address, model_path, context), runtime=options.runtime())
        _check(model, names, context)
        _check_types(model, dtypes())
    except InterposerError as error:
        raise InvalidArgumentError(f"the context node {name!r} cannot be used: {error}") from error
    is_dynamic = not all(info.is_concrete for info in model.inputs.values())
    again = partial(compiled, options=options)
    return Group((index,), model, perf_counter() - begin, is_dynamic, model.optimized, again, is_stored=True)


def _content(api: OrtApi, node: int, model_path: str, context: ContextOptions) -> bytes | Path:
    content = _bytes(api, node, "ep_cache_context")
    if _number(api, node, "embed_mode", 1):
        return content
    path = Path(content.decode("utf-8", "replace"))
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise InvalidArgumentError(f"its file is {str(path)!r}; expected a path below the folder of the model")
    context_file = (Path(model_path).parent if model_path else context.folder("")) / path
    if not _is_file(context_file):
        raise InvalidArgumentError(f"there is no file {context_file}; it belongs beside the model")
    return context_file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the name is too long or has a null character, or a folder may not be read
        return False


def _check_origin(notes: bytes, options: BridgeOptions) -> None:
    try:
        origin = json.loads(notes)
        version, identities = str(origin["interposer"]), dict(origin["backends"])
    except (ValueError, LookupError, TypeError):
        raise InvalidArgumentError(f"its attribute 'notes' does not say what made it; {_RENEW}") from None
    if version != __version__:
        raise InvalidArgumentError(f"it was made by Interposer {version}, and this is {__version__}; {_RENEW}")
    other_backends = [name for name in identities if name not in (*options.backends, REFERENCE)]
    if other_backends:
        raise InvalidArgumentError(
            f"it runs on {', '.join(other_backends)}, and the option 'backends' has {', '.join(options.backends)}"
        )
    for name, identity in identities.items():
        if identity != _identity(options, name):
            raise InvalidArgumentError(f"it was compiled by another build of the backend {name}; {_RENEW}")


def _identity(options: BridgeOptions, name: str) -> str:
    return identity_of(options.runtime().registry.get(name))


def _check(model: Model, names: tuple[Sequence[str], Sequence[str]], context: ContextOptions) -> None:
    own_names = {*model.inputs}, {*model.outputs}
    if not own_names[0] <= {*names[0]} or own_names[1] != {name for name in names[1] if name}:
        raise InvalidArgumentError(
            f"its network has the inputs {sorted(own_names[0])} and the outputs {sorted(own_names[1])}, which are not "
            "those of the node"
        )
    notes = [message.text for message in model.optimized.messages if message.passing]
    if notes and not context.compiles:
        raise InvalidArgumentError(f"{notes[0]}; session.disable_model_compile does not allow that")


def _check_types(model: Model, dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """Refuse a network of other types than the node's: ONNX Runtime allocates the memory of outputs for the latter."""
    for name, info in (*model.inputs.items(), *model.outputs.items()):
        own_dtype = None if info is None else info.dtype.numpy
        if own_dtype != dtypes[name]:
            raise InvalidArgumentError(
                f"its network has {name!r} as {own_dtype or 'unknown'}, and the node {dtypes[name]}"
            )


# --- writing ----------------------------------------------------------------------------------------------------------


def write_context(
    api: OrtApi,
    name: str,
    names: tuple[Sequence[str], Sequence[str]],
    group: Group,
    model_path: str,
    context: ContextOptions,
    options: BridgeOptions,
) -> int:
    """Return the address of a new context node for a group, which ONNX Runtime owns.

    Args:
        api: the functions of ONNX Runtime.
        name: the name of the node.
        names: the names of its inputs and of its outputs.
        group: the compiled group.
        model_path: the path of the model; empty for none.
        context: what the session asks about context nodes.
        options: the options of the provider.

    Raises:
        InterposerError: the network cannot be saved, is too large for an attribute, or its file has no place.
    """
    content = _saved(group)
    if context.embeds and len(content) > _LARGEST:
        raise InvalidArgumentError("the network is too large for an attribute; set ep.context_embed_mode to 0")
    if not context.embeds:
        content = _beside(content, name, model_path, context).encode()
    used_backends = dict.fromkeys(placement.backend for placement in group.optimized.placements)
    notes = {"interposer": __version__, "backends": {backend: _identity(options, backend) for backend in used_backends}}
    attributes = [
        api.new_attribute("main_context", _INT, (1).to_bytes(8, "little")),
        api.new_attribute("embed_mode", _INT, int(context.embeds).to_bytes(8, "little")),
        api.new_attribute("ep_cache_context", _STRING, content),
        api.new_attribute("source", _STRING, context.provider.encode()),
        api.new_attribute("partition_name", _STRING, name.encode()),
        api.new_attribute("ep_sdk_version", _STRING, __version__.encode()),
        api.new_attribute("notes", _STRING, json.dumps(notes).encode()),
    ]
    return api.new_node(_OPERATOR, name, names, attributes)


def _saved(group: Group) -> bytes:
    shapes: list[Mapping[str, Any]] | None = [group.sample] if group.is_dynamic else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.ipn")
        group.model.save(path, shapes=shapes)
        return path.read_bytes()


def _beside(content: bytes, name: str, model_path: str, context: ContextOptions) -> str:
    """Write a network to a file beside the model, and return the name of the file."""
    folder = context.folder(model_path)
    stem = Path(context.path).stem if context.path else f"{Path(model_path).stem}_ctx"
    file = f"{stem}_{name}.ipn".replace("/", "_")
    write_file(folder / file, content)
    return file
