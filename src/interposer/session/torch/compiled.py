"""`CompiledGraph`: a functional graph of ATen operators as a function of PyTorch tensors."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from interposer.core.errors import InterposerError, UnknownBackendError
from interposer.frontends.torch.examples import with_sizes
from interposer.frontends.torch.graph import import_graph
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import bound_symbols
from interposer.frontends.torch.sources import Fixed, Imported, Produced, Source, UserInput, Weight
from interposer.session.fallback import chosen_ids
from interposer.session.model import Model
from interposer.session.torch.arrays import array_of, tensor_of
from interposer.session.torch.options import CompileOptions
from interposer.session.torch.views import View, flat, with_bases
from interposer.session.torch.watching import Watch

__all__ = ["CompiledGraph"]

_MOST: Final = 8
"""How many networks a graph has, for different sizes."""
_CHANGES: Final = 3
"""After this number of changes, a weight is passed as an input instead of a constant."""

Key = tuple[Any, ...]


class CompiledGraph:
    """Runs a functional graph of ATen operators, with its weights as constants.

    It is called with a list of tensors and numbers, one for each placeholder of the graph. Networks are built in the
    first call for each set of sizes. A static input, which is the same tensor in all calls, is a constant of the
    networks. If it is replaced or changes in place, the networks are built again; an input that has changed three
    times becomes an ordinary one. The results are new tensors in each call. Several threads may call it.

    If a network cannot be built, `give_up` is called with the error and returns the function that runs the graph from
    then on.
    """

    _boxed_call = True  # PyTorch passes a list of inputs

    def __init__(
        self,
        graph: Any,
        static: set[int],
        options: CompileOptions,
        give_up: Callable[[InterposerError], Callable[..., Any]],
    ) -> None:
        self._graph, self._views = with_bases(graph)
        graph = self._graph
        self._options, self._give_up = options, give_up
        self._placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._examples = [node.meta.get("val") for node in self._placeholders]
        tensors = {index for index, example in enumerate(self._examples) if isinstance(example, torch.Tensor)}
        self._sized = [
            index for index in range(len(self._examples)) if index not in tensors or _is_sized(self._examples[index])
        ]
        self._static = sorted(static & tensors)
        self._built_for: _Weights | None = None
        self._change_counts: Counter[int] = Counter()
        self._lock = threading.RLock()
        self._instead: Callable[..., Any] | None = None

    def __call__(self, inputs: list[Any]) -> Any:
        """Return a list of the graph's results for a list of its inputs, which is emptied."""
        values = list(inputs)
        inputs.clear()
        if self._instead is not None:
            return self._instead(*values)
        key = tuple([_size_key(values[index]) for index in self._sized])
        weights = self._built_for
        variant = None if weights is None else weights.variants.get(key)
        if variant is None or weights is None or weights.have_changed(values):
            try:
                variant = self._prepared(key, values)
            except UnknownBackendError:
                raise
            except InterposerError as error:
                self._instead = self._give_up(error)
                return self._instead(*values)
        return variant.run(values)

    def _prepared(self, key: Key, values: Sequence[Any]) -> _Variant:
        """Return the network for these inputs, built with their present weights."""
        with self._lock:
            weights = self._built_for
            if weights is None or weights.have_changed(values):
                if weights is not None:
                    self._count_changes(weights, values)
                weights = _Weights(self._static, values)
            if key not in weights.variants:
                weights.variants[key] = self._built(values, weights.static)
                while len(weights.variants) > _MOST:
                    weights.variants.popitem(last=False)
            self._built_for = weights
            return weights.variants[key]

    def _count_changes(self, weights: _Weights, values: Sequence[Any]) -> None:
        """Count which weights have changed; those that change often become ordinary inputs of later networks."""
        for index in weights.changed(values):
            self._change_counts[index] += 1
        self._static = [index for index in self._static if self._change_counts[index] < _CHANGES]

    def _built(self, values: Sequence[Any], static: Sequence[int]) -> _Variant:
        sizes = self._sizes(values)
        graph = with_sizes(self._graph, sizes) if self._sized else self._graph
        sources = {
            node.name: self._source(index, values[index], index in static)
            for index, node in enumerate(self._placeholders)
        }
        imported_graph = import_graph(graph, sources, name="graph", sizes=sizes)
        fed_indices = [
            index for index, node in enumerate(self._placeholders) if isinstance(sources[node.name], UserInput)
        ]
        options = self._options
        model = Model(
            imported_graph.network, options.chosen_runtime(), chosen_ids(options.backends), options.options,
            options.limits, options.fallback,
        )  # fmt: skip
        return _Variant.of(model, imported_graph, fed_indices, graph, sizes, self._views)

    def _source(self, index: int, graph_input: Any, is_static: bool) -> Source:
        if not isinstance(graph_input, torch.Tensor):
            return Fixed(graph_input)
        name = self._placeholders[index].name
        return Weight(name, graph_input) if is_static else UserInput(name)

    def _sizes(self, values: Sequence[Any]) -> dict[str, int]:
        """Return the values of the symbolic sizes in a call, by name."""
        sizes = dict[str, int]()
        for example, graph_input in zip(self._examples, values, strict=True):
            if isinstance(example, torch.Tensor):
                sizes |= bound_symbols(example.shape, graph_input.shape)
            elif isinstance(example, torch.SymInt):
                sizes |= bound_symbols([example], [graph_input])
        return sizes


class _Weights:
    """The networks that were built with the same values of the static inputs.

    `static` are the indices of these inputs. A thread that has found no change may use any of the `variants`, also
    while another thread builds networks with newer weights: these are variants of another object.
    """

    def __init__(self, static: Sequence[int], values: Sequence[Any]) -> None:
        self.static = tuple(static)
        self.variants: OrderedDict[Key, _Variant] = OrderedDict()
        self._watch = Watch([values[index] for index in static])

    def have_changed(self, values: Sequence[Any]) -> bool:
        """Return True if static inputs of a call are other tensors, or have changed in place."""
        tensors = self._watch.tensors
        if any([values[index] is not tensor for index, tensor in zip(self.static, tensors, strict=True)]):
            return True
        return bool(tensors) and self._watch.has_changed()

    def changed(self, values: Sequence[Any]) -> list[int]:
        """Return the indices of the static inputs of a call that are other tensors, or whose changes PyTorch counts."""
        indices_and_tensors = zip(self.static, self._watch.tensors, strict=True)
        return [
            index for index, tensor in indices_and_tensors if values[index] is not tensor or self._watch.changed(tensor)
        ]


class _Variant(NamedTuple):
    """The network of a graph for one set of sizes.

    `fed` are the indices of the graph's inputs that the network takes, `results` what the graph returns, `views` which
    of these results, or views of them, are returned to PyTorch, and `sizes` the values of symbolic sizes.
    """

    model: Model
    fed: Sequence[int]
    results: Sequence[_Result]
    views: Sequence[View]
    sizes: dict[str, int]

    @classmethod
    def of(
        cls,
        model: Model,
        imported: Imported,
        fed: Sequence[int],
        graph: Any,
        sizes: dict[str, int],
        views: Sequence[View],
    ) -> _Variant:
        """Return the variant of a graph; `fed` are the indices of its inputs that the network takes."""
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        outputs = flat(next(node for node in graph.graph.nodes if node.op == "output").args[0])
        order = [layer.name for layer in imported.network.graph.inputs]
        by_name = {placeholders[index].name: index for index in fed}
        results = [_result(output, node, placeholders) for output, node in zip(imported.outputs, outputs, strict=True)]
        return cls(model, [by_name[name] for name in order], results, views, sizes)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Return the results of the graph for its inputs."""
        arrays = [array_of(values[index], f"input {index}") for index in self.fed]
        outputs = self.model.run(arrays)
        tensors = [result.of(outputs, values) for result in self.results]
        return [
            view.of(tensors[view.output], self.sizes) if view.steps else tensors[view.output] for view in self.views
        ]


class _Result(NamedTuple):
    """One result of a graph: an output of the network, an input of the graph, or a fixed value.

    `example` is a tensor with the strides that PyTorch expects; None for contiguous ones.
    """

    output: int | None = None
    input: int | None = None
    value: Any = None
    is_number: bool = False
    is_complex: bool = False
    example: Any = None

    def of(self, outputs: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return the result in a run with these outputs of the network and inputs of the graph."""
        if self.input is not None:
            return values[self.input]
        if self.output is None:
            return self.value
        if self.is_number:
            return outputs[self.output].item()
        tensor = tensor_of(outputs[self.output], is_complex=self.is_complex)
        return tensor if self.example is None else _strided(tensor, self.example)


def _result(output: Any, node: Any, placeholders: Sequence[Any]) -> _Result:
    if isinstance(node, torch.fx.Node) and node.op == "placeholder":
        return _Result(input=placeholders.index(node))
    if not isinstance(output, Produced):
        return _Result(value=output.value)
    example = node.meta.get("val")
    is_contiguous = not isinstance(example, torch.Tensor) or example.is_contiguous()
    return _Result(
        output.binding_id, None, None, output.is_number, output.is_complex, None if is_contiguous else example
    )


def _strided(tensor: Any, example: Any) -> Any:
    """Return a tensor with the order of strides of `example`, as PyTorch has recorded for views of the result."""
    order = sorted(range(tensor.dim()), key=lambda axis: -int(example.stride(axis)))
    copied_tensor = torch.empty_permuted(tuple(tensor.shape), order, dtype=tensor.dtype)
    return copied_tensor.copy_(tensor)


def _is_sized(tensor: Any) -> bool:
    """Return True if a tensor has symbolic sizes."""
    return any(isinstance(size, torch.SymInt) for size in tensor.shape)


def _size_key(graph_input: Any) -> Any:
    return tuple(graph_input.shape) if isinstance(graph_input, torch.Tensor) else graph_input
