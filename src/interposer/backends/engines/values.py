"""Values that an engine has refused: whether the inputs of a subgraph are the cause of a failed run.

Engines raise the same exceptions for an index out of range as for any other failure. After a failure, the reference
kernels of the layers with indices or sizes check these operands, as far as they are inputs of the subgraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interposer.core.errors import InterposerError, InvalidValueError
from interposer.core.schema import Op
from interposer.core.traits import Role
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.evaluation import evaluate

__all__ = ["ValueCheck", "checks_of", "refused_value"]


@dataclass(frozen=True)
class ValueCheck:
    """A layer of a subgraph whose indices or sizes are inputs of the subgraph.

    `sources` maps the positions of these operands to those of the inputs, and `tensors` to the names of the tensors.
    """

    op: Op
    name: str
    title: str
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    sources: dict[int, int]
    tensors: dict[str, str]

    def refusal(self, arrays: Sequence[Array], backend: str) -> InvalidValueError | None:
        """Return the error of the reference kernel for these inputs of the subgraph, or None if it accepts them."""
        operands = [
            arrays[self.sources[index]] if index in self.sources else _zeros(info)
            for index, info in enumerate(self.inputs)
        ]
        try:
            evaluate(self.op, operands, self.inputs, self.outputs)
        except InvalidValueError as error:
            tensor = self.tensors.get(error.operand, "")
            return error.of_layer(self.title, layer=self.name, backend=backend, tensor=tensor)
        except (InterposerError, MemoryError):
            return None
        return None


def _zeros(info: TensorInfo | None) -> Array | None:
    """Return zeros in the shape of a tensor, which use the memory of a single element."""
    return None if info is None else np.broadcast_to(np.zeros((), info.dtype.numpy), tuple(map(int, info.shape)))


def checks_of(view: SubgraphView) -> tuple[ValueCheck, ...]:
    """Return a check for each layer of a subgraph that has inputs of the subgraph as indices or sizes."""
    return tuple(_checks(view))


def _checks(view: SubgraphView) -> Iterator[ValueCheck]:
    position = {value: index for index, value in enumerate(view.inputs)}
    for layer in view:
        sources = {
            index: position[value]
            for index, value in enumerate(layer.inputs)
            if value in position and _is_decisive(layer, index)
        }
        infos = [None if value is None else value.known.with_constant(None) for value in layer.inputs]
        if sources and all(info is None or (info.is_tensor and info.is_concrete) for info in infos):
            names = {layer.op.operand_name(index): view.inputs[source].name for index, source in sources.items()}
            yield ValueCheck(layer.op, layer.name, str(layer), tuple(infos), tuple(layer.output_infos), sources, names)


def _is_decisive(layer: Layer, index: int) -> bool:
    declared = layer.op.operands
    return declared[min(index, len(declared) - 1)].role in (Role.INDICES, Role.SIZES)


def refused_value(checks: Sequence[ValueCheck], arrays: Sequence[Array], backend: str) -> InvalidValueError | None:
    """Return the error for the first value that a layer cannot use, or None if no input of the subgraph is the cause.

    `arrays` are the inputs of the subgraph in a run that failed on the backend.
    """
    refusals = (check.refusal(arrays, backend) for check in checks)
    return next((refusal for refusal in refusals if refusal is not None), None)
