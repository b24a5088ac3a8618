"""The state of an import: what a converter reads about the model, and the network to which it adds layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.types import Array, Quantization, TensorInfo, TensorShape
from interposer.frontends.importer import RETAINED_ELEMENTS, Importer, keep_names
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.functions import Functions
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.tensors import array_of, dense_array_of
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops.quantization import Cast

__all__ = ["ImportState"]


class ImportState(Importer):
    """What is known during the import of a graph: the network, the value of every name, and unsupported operators.

    `operators` has the caller's converters by the name of the operator; they precede those of Interposer.
    """

    def __init__(
        self,
        network: Network,
        opsets: Mapping[str, int],
        files: ExternalFiles,
        functions: Functions,
        operators: Mapping[str, Callable[..., Value | Sequence[Value | None]]],
        outer: ImportState | None = None,
    ) -> None:
        super().__init__(network, outer)
        self._opsets = opsets
        self._files = files
        self._functions = functions
        self._operators = operators
        self._values: dict[str, Value] = {}
        self._arrays: dict[str, Array] = {}
        self._annotations: dict[str, Quantization] = {}
        self.quantizations: dict[tuple[int, int, int, int | None], tuple[Array, Array | None, Quantization | None]] = {}
        """Quantizations that were made of constant scales and zero points, by the ids of both, the axis and the rank.

        The arrays are in the values too, so that their ids remain theirs.
        """
        self._read_arrays: dict[str, TensorInfo] = {}
        """The infos of initializers that were read without adding a constant, by name."""
        self._missing: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self.converted_inside = 0
        self.block_size = 0
        """The number of channels of a block for operators on images whose channels are in blocks, 0 without them."""
        self.declared: Mapping[str, TensorShape] = {}
        """The shapes that the model declares for the inputs and outputs of its graph, by name."""

    def define_constants(self, arrays: Mapping[str, Array]) -> None:
        """Define the initializers by name; an initializer becomes a constant of the network when it is first used."""
        self._arrays.update(arrays)
        self.fold_within(sum(array.nbytes for array in self._arrays.values()))

    def annotate(self, annotations: Mapping[str, Quantization]) -> None:
        """Record quantization annotations by the name of the tensor; they apply to constants and outputs."""
        self._annotations = dict(annotations)

    def define(self, name: str, value: Value) -> None:
        """Record which value of the network a name of the model stands for."""
        self._values[name] = value

    def define_input(self, name: str, value: Value) -> None:
        """Record which value of the network the name of a model's input stands for."""
        self.add_input(value)
        self.define(name, value)

    def array(self, tensor: Message) -> Array:
        """Return the data of a `TensorProto` as an array, read from its external file if necessary."""
        return array_of(tensor, self._files)

    def dense_array(self, tensor: Message) -> Array:
        """Return the data of a `SparseTensorProto` as an array with all elements."""
        return dense_array_of(tensor, self._files)

    def value(self, name: str) -> Value:
        """Return the network value of a name of the model; an initializer becomes a constant on first use.

        `ParseError` is raised if the name is not defined.
        """
        if name not in self._values and name in self._arrays:
            self._values[name] = self._initializer(name)
        if name not in self._values:
            raise ParseError(f"the value {name!r} is not defined")
        return self._values[name]

    def unused_initializer(self, name: str) -> Array | None:
        """Return the elements of an initializer that is no constant of the network yet, without adding one.

        The result is None for other names, for texts, and for initializers with a quantization annotation.
        """
        info = self.unused_info(name)
        return None if info is None else info.constant

    def unused_info(self, name: str) -> TensorInfo | None:
        """Return the info of an initializer whose elements `unused_initializer` returns, or None."""
        if name in self._values:
            return None
        info = self._read_arrays.get(name)
        if info is not None:
            return info
        array = self._arrays.get(name)
        if array is None or array.dtype.kind == "O" or name in self._annotations:
            return None
        self._read_arrays[name] = info = TensorInfo.of(array)
        return info

    def _initializer(self, name: str) -> Value:
        array, annotation = self._arrays[name], self._annotations.get(name)
        fits = annotation is not None and _fits(TensorInfo.of(array), annotation)
        return self.constant(array, name, f"initializer {name!r}", annotation if fits else None)

    def annotated(self, name: str) -> Value:
        """Return the value of a name, with the quantization that the model's annotation gives it, if any fits.

        A cast adds the quantization.
        """
        value, annotation = self.value(name), self._annotations.get(name)
        if annotation is None or value.known.quantization == annotation or not _fits(value.known, annotation):
            return value
        return self.add(Cast(value.known.dtype), [value], f"{name}/annotated", f"output {name!r}", annotation)[0]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The initializers by name."""
        return self._arrays

    def give_up(self, outputs: Sequence[str]) -> None:
        """Mark the values with these names as missing, as they depend on an unsupported operator."""
        self._missing.update(name for name in outputs if name)

    def keep_names(self) -> None:
        """Record on the values of the network the names that they have in the model."""
        keep_names(self.network.graph, self._values.items())
        unused_infos = {name: info for name, info in self._read_arrays.items() if name not in self._values}
        small_infos = {name: info for name, info in unused_infos.items() if info.num_elements <= RETAINED_ELEMENTS}
        self.network.graph.folded = {**self.network.graph.folded, **small_infos}


def _fits(info: TensorInfo, annotation: Quantization | None) -> bool:
    """Return True if a tensor with this info can have this quantization: its type and per-channel axis match."""
    try:
        info.with_quantization(annotation)
    except InvalidArgumentError:
        return False
    return True
