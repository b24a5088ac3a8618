"""Loading TFLite files: the network in a file, or a template that becomes networks for shapes and values of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from interposer.core.errors import InvalidArgumentError, did_you_mean, expect, memory_to
from interposer.frontends.sources import Source, errors_at, read_file
from interposer.frontends.template import Metadata, Template, Values
from interposer.frontends.tflite.container import read_model
from interposer.frontends.tflite.contents import Model, Signature
from interposer.frontends.tflite.cutting import cut
from interposer.frontends.tflite.importer import SubgraphImporter
from interposer.frontends.tflite.inputs import Request, Shapes
from interposer.frontends.tflite.metadata import metadata_of
from interposer.ir.network import Network

__all__ = ["load", "template"]


@memory_to("read the network")
def load(
    source: Source,
    *,
    shapes: Shapes | None = None,
    dynamic: bool = False,
    values: Values | None = None,
    signature: str | None = None,
    stand_in: bool = False,
) -> Network:
    """Return the network in a TFLite file: its first subgraph, or the one that a signature calls.

    Inputs and outputs have the names of the file's tensors; binding ids are 0, 1 ... in the file's order. Constants
    are views of the file's bytes, which must not change while the network is in use; only weights of 2 and 4 bits, and
    quantized weights of float operators, are unpacked.

    Args:
        source: a path, or the bytes of a file.
        shapes: a shape by input name, which replaces the file's; None leaves a dimension open. Or a size by dimension
            name: dynamic dimensions of the file are named after input and axis, as in ``image_0``.
        dynamic: leave dynamic dimensions open (those that are -1 in the file's ``shape_signature``),
            instead of using the sizes of the exported model.
        values: arrays by input name; these inputs become constants of the network.
        signature: the key of a signature in the file, such as ``"serving_default"``. The network is the subgraph that
            it calls, and inputs and outputs have the names and the order of the signature.
        stand_in: use a `StandIn` layer for each custom operator that is not known. Such a network can be inspected and
            divided; only a backend that supports the layer can run it.

    Raises:
        ParseError: the file cannot be read, is damaged, or uses something that is not supported.
        UnsupportedOperatorError: operators are not known; the message lists all of them with their counts.
        UnboundInputError: an operator needs the values of inputs, or their shapes.
        InvalidArgumentError: `source` is not a path or bytes, a shape or value does not fit, or the file has no such
            signature.
    """
    unbound = template(source, shapes=shapes, dynamic=dynamic, signature=signature, stand_in=stand_in)
    return unbound.network(values=values)


@memory_to("read the network")
def template(
    source: Source,
    *,
    shapes: Shapes | None = None,
    dynamic: bool = False,
    signature: str | None = None,
    stand_in: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    subgraph: int = 0,
) -> Template:
    """Return a `Template`, which creates networks for shapes and values of the file's inputs.

    The other arguments and errors are those of `load`; errors in operators are raised when a network is created.

    Args:
        inputs: names of tensors of the subgraph that are inputs too; operators before them are not read.
        outputs: names of tensors, or of outputs of the signature, that are its outputs; operators after them are not
            read.
        subgraph: the index of the subgraph to convert; 0 is the main one.
    """
    expect(signature, str | None, "the signature must be the key of one")
    path, content = read_file(source)
    model = read_model(content, path=path)
    _check_subgraph(model, subgraph, signature)
    if inputs or outputs:
        called_signature = None if signature is None else _signature_of(model, signature)
        model = cut(
            model,
            subgraph if called_signature is None else called_signature.subgraph,
            inputs,
            outputs,
            called_signature,
        )
    request = Request(model, Path(path).name if path else "", subgraph, stand_in=stand_in)
    metadata = partial(metadata_of, model, content)

    def of_signature(key: str) -> Template:
        return _template(replace(_calling(request, key), dynamic=True), path, signatures, metadata)

    signatures = {other.key: partial(of_signature, other.key) for other in model.signatures}
    chosen_request = request if signature is None else _calling(request, signature)
    return _template(replace(chosen_request, shapes=dict(shapes or {}), dynamic=dynamic), path, signatures, metadata)


def _template(
    request: Request,
    path: str | None,
    signatures: Mapping[str, Callable[[], Template]],
    metadata: Callable[[], Metadata],
) -> Template:
    def build(shapes: Shapes, values: Values) -> Network:
        with errors_at(path):
            bound = replace(request, shapes={**request.shapes, **shapes}, values=values)
            return SubgraphImporter(bound).convert()

    with errors_at(path):
        importer = SubgraphImporter(request)
        inputs = importer.inputs
        return Template(
            importer.network.name,
            inputs.infos(),
            importer.outputs(),
            build,
            inputs.usual_shapes(),
            signatures,
            metadata,
        )


def _calling(request: Request, key: str) -> Request:
    """Return the request for the subgraph that a signature of the file calls."""
    signature = _signature_of(request.model, key)
    return replace(request, number=signature.subgraph, signature=signature)


def _check_subgraph(model: Model, number: int, signature: str | None) -> None:
    if number and signature is not None:
        raise InvalidArgumentError(f"subgraph {number} and the signature {signature!r} are given; name one of them")
    if not 0 <= number < len(model.subgraphs):
        raise InvalidArgumentError(
            f"subgraph: the file has no subgraph {number}; it has {len(model.subgraphs)}, numbered from 0"
        )


def _signature_of(model: Model, key: str) -> Signature:
    keys = [signature.key for signature in model.signatures]
    if key not in keys:
        hint, names = did_you_mean(key, keys), ", ".join(keys) or "none"
        raise InvalidArgumentError(f"signature: the model has no signature {key!r}{hint} (it has: {names})")
    return model.signatures[keys.index(key)]
