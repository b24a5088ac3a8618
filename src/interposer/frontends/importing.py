"""The network that an import builds: layers are added to it, and what is known already is folded to constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.frontends.folding import Folder, fold_dimensions
from interposer.frontends.needs import Needs, needs_of
from interposer.frontends.unsupported import UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow
from interposer.ops.reshape import Shape

__all__ = ["NetworkImport"]


class NetworkImport:
    """Adds layers to the network of an import; results that follow from constants or shapes become constants."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._folder = Folder(0)
        self._dimensions: dict[Value, Array] = {}
        self._inputs: set[Layer] = set()
        self._around: dict[Layer, Value] = {}
        self._reserved: set[str] = set()
        self._used: Counter[str] = Counter()

    def reserve(self, names: set[str]) -> None:
        """Reserve names for layers that are added later; another layer that asks for one of them gets a suffix."""
        self._reserved = names

    def extents(self, value: Value) -> Array | None:
        """Return the elements of a tensor that holds dimensions, such as a Reshape's shape; None if they are not known.

        Each element is an integer, or a `Dim` for an unknown dimension.
        """
        if value.constant is not None:
            return value.constant.astype(object) if value.constant.dtype.kind in "iu" else None
        return self._dimensions.get(value)

    def ask_for(self, value: Value, title: str) -> NoReturn:
        """Refuse a node, as its operand `title` is not known; the error names the inputs that determine it.

        Raises:
            UnboundFormError: the value is known once some inputs have values or shapes.
            UnsupportedFormError: it is computed from data at run time.
        """
        needs = needs_of(value, self._inputs, self._folder.takes, self._around)
        if needs is None:
            raise UnsupportedFormError(f"its operand {title!r} is computed from data")
        raise UnboundFormError(f"its operand {title!r} is no constant", needs)

    def needs(self, value: Value) -> Needs | None:
        """Return which inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """
        return needs_of(value, self._inputs, self._folder.takes)

    def mark(self) -> int:
        """Return the number of layers so far, which `forget` takes to remove the layers that were added later."""
        return len(self.network.graph)

    def forget(self, mark: int) -> None:
        """Remove the unused layers that were added since `mark` was called.

        Constants and captured values of a region are not removed, as names refer to them.
        """
        for layer in reversed(list(self.network.graph)[mark:]):
            if not isinstance(layer.op, Constant | Input) and not any(value.uses for value in layer.outputs):
                self.network.graph.erase(layer)

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, name: str, source: str = "", quantization: Quantization | None = None) -> Value:
        """Add a constant with this array and quantization to the network, and return its value.

        `name` may get a number appended; `source` says in messages where the constant comes from.
        """
        return self.network.add_layer(Constant(share(array), quantization), name=self._name(name), source=source).output

    def add(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str,
        source: str,
        quantization: Quantization | None = None,
    ) -> list[Value]:
        """Add a layer to the network, and return its outputs; results that are known already become constants instead.

        `source` says in messages where the layer comes from, and `quantization` is that of the outputs. `ParseError` is
        raised if the operator does not accept the operands.
        """
        op = op.canonical()
        folded = None if quantization else self._folder.fold(op, operands)
        if folded is not None and all(info.is_tensor for info, _ in folded):
            return [self.constant(array, name, source, info.quantization) for info, array in folded]
        declared = self._declared(op, operands, quantization)
        layer = self.network.add_layer(op, *operands, name=self._name(name), outputs=declared, source=source)
        for error in () if layer.inferred is not None else infer_layer(layer):
            raise ParseError(error)
        self._note_dimensions(layer)
        for value, (info, array) in zip(layer.outputs, folded or (), strict=False):
            self._note_collection(value, info, array)
        return [self._settled(value) for value in layer.outputs]

    def add_control(
        self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph], name: str, source: str
    ) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` to the network, and return its outputs.

        `source` says in messages where the layer comes from.
        """
        layer = self.network.graph.add(op, operands, name=self._name(name), source=source, regions=graphs)
        for error in infer_layer(layer):
            raise ParseError(error)
        return list(layer.outputs)

    def _note_collection(self, value: Value, info: TensorInfo, array: Array) -> None:
        """Record the known contents of a sequence or an optional, whose layer was added since it cannot be a constant.

        Later operators can then be folded; the layer stays unused if all its consumers are.
        """
        value.info = info
        self._folder.note(value, array)

    def _declared(
        self, op: Op, operands: Sequence[Value | None], quantization: Quantization | None
    ) -> TensorInfo | None:
        if quantization is None:
            return None
        infos = [value.info if value is not None else None for value in operands]
        for error in op.violations(*infos):
            raise ParseError(error)
        inferred = op.infer_infos(*infos)[0]
        return None if inferred is None else TensorInfo(inferred.shape, inferred.dtype, quantization)

    def _name(self, requested: str) -> str:
        """Return the requested name of a layer, with a number appended from its second use on.

        A reserved name gets the suffix ``/layer``.
        """
        name = f"{requested}/layer" if requested in self._reserved else requested
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}_{self._used[name] - 1}"

    def _settled(self, value: Value) -> Value:
        """Return a new constant for a value that inference determines (such as a shape), else the value itself."""
        if value.constant is None or value.is_constant:
            return value
        return self._constant(value.known, value.producer.name, value.producer.source)

    def _constant(self, info: TensorInfo, name: str, source: str) -> Value:
        assert info.constant is not None
        return self.constant(info.constant, name, source, info.quantization)

    def _note_dimensions(self, layer: Layer) -> None:
        if isinstance(layer.op, Shape) and layer.values[0].known.is_ranked:
            dims = np.empty(layer.values[0].known.rank, object)
            dims[:] = layer.values[0].known.shape
            self._dimensions[layer.output] = dims
        elif self._dimensions and any(value in self._dimensions for value in layer.values):
            result = fold_dimensions(layer.op, [self.extents(value) for value in layer.values])
            self._dimensions.update(zip(layer.outputs, result or (), strict=False))
