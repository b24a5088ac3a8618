"""Checks of what a backend claims: every capability, and every property of its workloads, is exercised."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from interposer.backend import (
    DEFAULT_FACTORY,
    ArrayHandle,
    Backend,
    MemoryManager,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import InterposerError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.ops import DynamicSlice
from interposer.ops.control import Constant, Input, MemCopy, MemImport, Output, PreCompiled
from interposer.runtime.loaded import LoadedNetwork
from interposer.testing.bench import Bench, can_be_shaped, view_of
from interposer.testing.contents import Contents, rubbish
from interposer.testing.contracts import on_backend
from interposer.testing.known_samples import samples_of
from interposer.testing.oracle import reference_outputs
from interposer.testing.outcome import Skipped
from interposer.testing.progress import note
from interposer.testing.sample import Sample
from interposer.testing.tolerances import same
from interposer.testing.untried_types import untried_kinds

__all__: list[str] = []

_PER_OPERATOR: Final = 2
_ATTRIBUTES: Final = 8
_GAP: Final = 2


@on_backend("strided", "in-place", "dynamic-shapes", "keeps-constants", "non-constant-weights", "types")
def claims(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error for every claim of the backend that does not hold.

    Workloads that claim `strided` are run on sub-tensors. Workloads that claim `in_place` are run with an output that
    shares the memory of an input. A backend with DynamicShapes must accept layers with unknown dimensions, and run them
    on several sizes. Constants that compiled subgraphs do not list in `constants` are overwritten after loading. A
    backend with NonConstWeights must accept weights that the caller provides. A backend without any of these claims
    passes. Every data type that the backend accepts for an operator must be the type of a sample, as no other check
    tries it.
    """
    yield from _CHECKS[variant](bench)


def _some(bench: Bench, *, with_constants: bool = False) -> Iterator[Sample]:
    """Yield a few samples of every supported operator, with different data types.

    With `with_constants`, only samples that have a constant operand are considered.
    """
    samples_of_type: dict[type, list[Sample]] = {}
    for sample in bench.taken:
        if with_constants and not any(operand is not None and operand.constant for operand in sample.inputs):
            continue
        chosen_of_op = samples_of_type.setdefault(type(sample.op), [])
        kinds = {_kind(operand) for operand in chosen_of_op}
        if len(chosen_of_op) < _PER_OPERATOR and _kind(sample) not in kinds:
            chosen_of_op.append(sample)
    for samples in samples_of_type.values():
        yield from samples


def _kind(sample: Sample) -> object:
    return next((operand.info.dtype for operand in sample.inputs if operand is not None), None)


# --- workloads that are executed directly -----------------------------------------------------------------------------


class _Direct:
    """The layer of a sample, prepared so that a check can execute the backend's workload on tensors of its own choice.

    No runtime is involved: the check creates the tensors by `create`, `constant` and `piece`, then calls `acquire`, and
    `close` at the end.
    """

    def __init__(self, bench: Bench, sample: Sample) -> None:
        self.network, self.feeds = sample.network()
        optimized = bench.optimize(self.network)
        backend: Backend = bench.backend
        not_placed = (Constant, Input, Output, MemCopy, MemImport)
        layers = [layer for layer in optimized.graph.topological() if not isinstance(layer.op, not_placed)]
        self.layer: Layer | None = layers[0] if len(layers) == 1 else None
        self.registry = TensorHandleFactoryRegistry()
        backend.register_tensor_handle_factories(self.registry, bench.settings.options)
        self.manager: MemoryManager | None = backend.create_memory_manager()
        self.factory: WorkloadFactory = backend.create_workload_factory(self.manager, bench.settings.options)
        preferences = backend.handle_factory_preferences
        preferred_id = next(
            (name for name in preferences if name in self.registry or name == DEFAULT_FACTORY), DEFAULT_FACTORY
        )
        self.handles: TensorHandleFactory | None = (
            None if preferred_id == DEFAULT_FACTORY else self.registry.factory(preferred_id)
        )
        self.contents = Contents()
        self.created_handles: list[TensorHandle] = []
        self.parents: list[TensorHandle] = []
        self.inputs = {f"input_{binding_id}": array for binding_id, array in self.feeds.items()}

    @property
    def plain(self) -> bool:
        """True if the backend's tensors for this layer are all arrays in host memory."""
        return self.handles is None and self.factory.makes_arrays

    def workload(self) -> Workload | None:
        """Create the workload of the layer; return None if the layer was divided, or has strings or unknown shapes."""
        if self.layer is None or any(not info.is_concrete or not info.dtype.bits for info in self._infos(self.layer)):
            return None
        return self.factory.create_workload(self.layer, WorkloadInfo.of(self.layer))

    def _infos(self, layer: Layer) -> list[TensorInfo]:
        return [info for info in (*layer.input_infos, *layer.output_infos) if info is not None]

    def array(self, value: Value) -> Array:
        """Return the array of one of the layer's inputs: that of the constant, or the sample's array for the input."""
        while isinstance(value.producer.op, MemCopy | MemImport):
            [value] = value.producer.values
        array = value.constant if value.is_constant else self.inputs[value.producer.name]
        assert array is not None
        return array

    def constant(self, value: Value) -> TensorHandle:
        """Create a constant in the backend's memory, with the array of one of the layer's inputs; return its handle."""
        array, info = self.array(value), value.known
        if self.handles is not None:
            return self.own(self.handles.create_constant(info, array))
        return self.own(self.factory.create_constant_handle(info, array))

    def create(self, info: TensorInfo) -> TensorHandle:
        """Create a tensor in the backend's memory and return its handle.

        Its lifetime overlaps with those of all others.
        """
        make = self.factory.create_tensor_handle if self.handles is None else self.handles.create
        return self.own(make(info))

    def own(self, handle: TensorHandle) -> TensorHandle:
        """Remember a handle so that `close` destroys it, and return it."""
        self.created_handles.append(handle)
        if self.handles is not None:
            self.contents.origins[id(handle)] = self.handles
        return handle

    @property
    def managers(self) -> list[MemoryManager]:
        """All memory managers of the backend."""
        return [*self.registry.memory_managers, *([] if self.manager is None else [self.manager])]

    def piece(self, info: TensorInfo) -> tuple[TensorHandle, TensorHandle] | None:
        """Create a sub-tensor with this info; return it and its larger parent tensor.

        None if the tensor handle factory does not support sub-tensors.
        """
        shape = [int(size) + _GAP for size in info.shape]
        origin = [1] * info.rank
        if self.plain:
            parent_array = ArrayHandle(info.with_shape(shape), np.full(shape, rubbish(info.dtype)))
            return parent_array.create_sub_tensor(origin, info), parent_array
        parent = self.create(info.with_shape(shape))
        parent.manage()
        maker = parent.create_sub_tensor if self.handles is None else self._made_by_factory(parent)
        piece = maker(origin, info)
        self.parents.append(parent)
        return None if piece is None else (self.own(piece), parent)

    def acquire(self) -> None:
        """End the lifetime of all tensors after all have begun, so that no two share memory, and acquire the memory."""
        for parent in self.parents:
            parent.allocate()
        for manager in self.managers:
            manager.acquire()

    def _made_by_factory(self, parent: TensorHandle) -> Callable[[list[int], TensorInfo], TensorHandle | None]:
        assert self.handles is not None
        factory = self.handles
        return lambda origin, info: factory.create_sub_tensor(parent, origin, info)

    def close(self) -> None:
        """Destroy all handles and release the memory."""
        for manager in self.managers:
            manager.release()
        for handle in reversed(self.created_handles):
            if type(handle) is not ArrayHandle:
                handle.destroy()


@contextmanager
def _direct(bench: Bench, sample: Sample) -> Iterator[_Direct | None]:
    try:
        direct = _Direct(bench, sample)
    except InterposerError:  # the checks of samples say why
        yield None
        return
    is_acquired = False
    try:
        yield direct
        is_acquired = True
    finally:
        if is_acquired:
            direct.close()


def _strided(bench: Bench) -> Iterator[str]:
    for sample in _some(bench):
        note(f"executing {sample.id} on sub-tensors")
        with _direct(bench, sample) as direct:
            workload = None if direct is None else direct.workload()
            if direct is not None and workload is not None and workload.strided:
                yield from _on_pieces(bench, sample, direct, workload)


def _on_pieces(bench: Bench, sample: Sample, direct: _Direct, workload: Workload) -> Iterator[str]:
    claim = f"{sample.id}: its workload says `strided`, but on sub-tensors, which have gaps between their rows,"
    pieces = _pieces(direct)
    if pieces is None:
        return
    inputs, targets = pieces
    workload.post_allocation_configure()
    direct.acquire()
    for handle, array in inputs:
        if handle is not None and array is not None:
            direct.contents.fill(handle, array)
    contents_before = [direct.contents.read(parent) for _, parent in targets]
    try:
        workload.execute([handle for handle, _ in inputs], [piece for piece, _ in targets])
    except Exception as error:
        yield f"{claim} it raised {type(error).__name__}: {error}"
        return
    expected_arrays = _requested(sample, direct)
    for key, ((piece, parent), old_contents) in enumerate(zip(targets, contents_before, strict=True)):
        problem = bench.tolerances.difference(direct.contents.read(piece), expected_arrays[key], piece.info)
        if problem and not sample.statistical:
            yield f"{claim} output {key} is wrong: {problem}"
        new_contents = direct.contents.read(parent)
        inner_slices = tuple(slice(1, -1) for _ in range(new_contents.ndim))
        new_contents[inner_slices] = old_contents[inner_slices]
        if not same(new_contents, old_contents):
            yield f"{claim} it wrote to the gaps beside output {key}"


_Inputs = list[tuple[TensorHandle | None, Array | None]]
_Targets = list[tuple[TensorHandle, TensorHandle]]


def _pieces(direct: _Direct) -> tuple[_Inputs, _Targets] | None:
    """Create sub-tensors of larger tensors for the inputs and outputs of the layer.

    The first list has a pair of sub-tensor and array to write for each input; the array is None for a constant, which
    is no sub-tensor. The second list has a pair of sub-tensor and parent tensor for each output. None is returned if
    the backend does not support sub-tensors, or an output is a scalar.
    """
    layer = direct.layer
    assert layer is not None
    is_supported = (
        direct.factory.supports_sub_tensors if direct.handles is None else direct.handles.supports_sub_tensors
    )
    if not is_supported or not all(info.rank for info in layer.output_infos):
        return None
    inputs: _Inputs = []
    for value in layer.inputs:
        if value is None or value.is_constant:
            inputs.append((None if value is None else direct.constant(value), None))
            continue
        sub_tensor = direct.piece(value.known.with_constant(None))
        if sub_tensor is None:
            return None
        inputs.append((sub_tensor[0], direct.array(value)))
    outputs = [direct.piece(info.with_constant(None)) for info in layer.output_infos]
    supported_outputs = [output for output in outputs if output is not None]
    return (inputs, supported_outputs) if len(supported_outputs) == len(outputs) else None


def _requested(sample: Sample, direct: _Direct) -> Mapping[int, Array]:
    if sample.expected is not None:
        return dict(enumerate(sample.expected))
    return reference_outputs(direct.network.graph, direct.feeds)


def _in_place(bench: Bench) -> Iterator[str]:
    for sample in _some(bench):
        note(f"executing {sample.id} in place")
        with _direct(bench, sample) as direct:
            workload = None if direct is None else direct.workload()
            if direct is not None and direct.plain and workload is not None and workload.in_place:
                yield from _over_inputs(bench, sample, direct, workload)


def _over_inputs(bench: Bench, sample: Sample, direct: _Direct, workload: Workload) -> Iterator[str]:
    layer = direct.layer
    assert layer is not None
    for name in layer.op.in_place:
        shared_operand = layer.operand(name)
        out = layer.output_infos[0]
        if (
            shared_operand is None
            or shared_operand.is_constant
            or len(layer.outputs) != 1
            or list(layer.values).count(shared_operand) != 1
        ):
            continue
        if (
            shared_operand.known.dtype.itemsize != out.dtype.itemsize
            or shared_operand.known.num_elements != out.num_elements
        ):
            continue
        arrays = {value: direct.array(value).copy() for value in layer.values}
        target = arrays[shared_operand].reshape(-1).view(out.dtype.numpy).reshape(tuple(out.shape))
        handles = [None if value is None else ArrayHandle(value.known, arrays[value]) for value in layer.inputs]
        workload.post_allocation_configure()
        workload.execute(handles, [ArrayHandle(out, target)])
        error = bench.tolerances.difference(target, _requested(sample, direct)[0], out)
        if error and not sample.statistical:
            yield f"{sample.id}: its workload says `in_place`, but where output 0 lies in {name!r} it is wrong: {error}"
        return


# --- capabilities -----------------------------------------------------------------------------------------------------


def _dynamic_shapes(bench: Bench) -> Iterator[str]:
    if not bench.backend.capabilities.has("DynamicShapes"):
        return
    num_open = num_accepted = 0
    reason = ""
    for sample in _some(bench):
        network, feeds_by_run = _open(sample)
        if network is None:
            continue
        num_open += 1
        view = SubgraphView(network.graph, [network.graph.layer("layer")])
        [verdict] = bench.query(view)
        if verdict:
            num_accepted += 1
            yield from _on_sizes(bench, sample, network, feeds_by_run)
        else:
            reason = reason or "; ".join(verdict.reasons)
    if num_open and not num_accepted:
        _require_all_families(bench, "DynamicShapes")
        yield (
            f"it says that it has DynamicShapes, but refuses all {num_open} layers that it takes with known "
            f"dimensions; of the first one it says: {reason}"
        )


def _require_all_families(bench: Bench, capability: str) -> None:
    """Raise `Skipped` if the user selected only some families of operators.

    A check calls this if no operator uses a capability, since operators of the other families may.
    """
    if bench.is_partial:
        raise Skipped(f"none of the tried operators uses the capability {capability}; those of other families may")


def _open(sample: Sample) -> tuple[Network | None, list[dict[int, Array]]]:
    """Derive a network from a sample whose input sizes are unknown until run time.

    Return it and the inputs of three runs. The sizes result from slices. The runs use the original size, twice that
    size, and the original size again. The network is None if the sample cannot be changed in this way.
    """
    closed_network, feeds = sample.network()
    layer = closed_network.graph.layer("layer")
    network, values = Network(sample.id), list[Value | None]()
    feeds_by_run: list[dict[int, Array]] = [{}, {}, {}]
    try:
        for value in layer.inputs:
            if value is None or value.is_constant:
                values.append(None if value is None else _again(network, value))
            else:
                array = feeds[int(value.producer.name.rpartition("_")[2])]
                values.append(_cut(network, value, array, feeds_by_run))
        layer_copy = network.add_layer(layer.op, *values, name="layer", outputs=_without_shapes(layer))
        for output in layer_copy.outputs:
            network.add_output_layer(output.index, output)
        network.validate()
    except InterposerError:
        return None, feeds_by_run
    return (
        network if any(value is not None and not value.known.is_concrete for value in values) else None
    ), feeds_by_run


def _again(network: Network, value: Value) -> Value:
    assert value.constant is not None
    return network.add_constant_layer(value.constant, value.known.quantization).output


def _cut(network: Network, value: Value, array: Array, runs: Sequence[dict[int, Array]]) -> Value:
    """Add inputs to the network so that `value` can have another length in each run, and return the replacement.

    The replacement is a slice of `array`, repeated twice; the length of its first axis is an input. The input arrays
    are added to the three `runs`, which are mappings by binding id. A scalar becomes a plain input.
    """
    binding_id, info = len(runs[0]), value.known
    if not array.ndim:
        for run_feeds in runs:
            run_feeds[binding_id] = array
        return network.add_input_layer(binding_id, info).output
    doubled_array = np.concatenate([array, array])
    doubled_input = network.add_input_layer(binding_id, info.with_shape(doubled_array.shape))
    end = network.add_input_layer(binding_id + 1, TensorInfo((1,), DataType.INT64))
    for run_feeds, size in zip(runs, (len(array), len(doubled_array), len(array)), strict=True):
        run_feeds |= {binding_id: doubled_array, binding_id + 1: np.array([size])}
    start = network.add_constant_layer(np.array([0]))
    return network.add_layer(DynamicSlice(axes=(0,)), doubled_input, start, end).output


def _without_shapes(layer: Layer) -> list[TensorInfo | None]:
    """Return the declared infos of the layer's results with unknown sizes; None for results without a declared info."""
    declared_infos = [value.declared for value in layer.outputs]
    return [None if info is None else info.with_shape([None] * info.rank) for info in declared_infos]


def _on_sizes(bench: Bench, sample: Sample, network: Network, runs: Sequence[Mapping[int, Array]]) -> Iterator[str]:
    """Run a network with unknown dimensions on several sizes in turn, and yield an error for each wrong result.

    `sample` is the one that the network was derived from. `runs` are the input arrays of each run, by binding id.
    """
    claim = f"{sample.id}: it says that it has DynamicShapes, but"
    note(f"running {sample.id} with unknown dimensions")
    expected = [_expected(network, feeds) for feeds in runs]
    try:
        with bench.loaded(bench.optimize(network, beside=["Oracle"])) as loaded_network:
            for run, expected_outputs in zip(runs, expected, strict=True):
                if expected_outputs is None:
                    continue
                outputs = loaded_network.run(run)
                yield from _differing(bench, sample, network, outputs, expected_outputs, claim)
    except InterposerError as error:
        yield f"{claim} with unknown dimensions: {error}"


def _expected(network: Network, feeds: Mapping[int, Array]) -> Mapping[int, Array] | None:
    try:
        return reference_outputs(network.graph, feeds)
    except InterposerError:
        return None


def _differing(
    bench: Bench,
    sample: Sample,
    network: Network,
    outputs: Mapping[int, Array],
    expected: Mapping[int, Array],
    claim: str,
) -> Iterator[str]:
    for key, expected_array in expected.items():
        info = network.graph.layer("layer").outputs[key].known.with_shape(expected_array.shape)
        error = bench.tolerances.difference(outputs[key], expected_array, info)
        if error and not sample.statistical:
            yield f"{claim} output {key}, of shape {list(expected_array.shape)}, is wrong: {error}"


def _keeps_constants(bench: Bench) -> Iterator[str]:
    for sample in _some(bench, with_constants=True):
        if not sample.statistical:
            note(f"changing the constants of {sample.id}")
            yield from _without_constants(bench, sample)


def _without_constants(bench: Bench, sample: Sample) -> Iterator[str]:
    """Overwrite the constants that no workload claims to read after loading, and compare the results of another run."""
    network, feeds = sample.network()
    try:
        optimized = bench.optimize(network)
        if not all(map(_names_constants, optimized.graph)):
            return
        loaded_network = LoadedNetwork(optimized)
    except InterposerError:
        return
    try:
        arrays_read = loaded_network.constants_read
        outputs = [loaded_network.bindings.new_outputs() for _ in range(2)]
        arrays = [layer.output.constant for layer in network if layer.kind == "Constant"]
        unread_arrays = [
            array for array in arrays
            if array is not None and array.nbytes and not array.dtype.hasobject
            and not any(np.may_share_memory(array, constant) for constant in arrays_read)
        ]  # fmt: skip
        if not unread_arrays or set(outputs[0]) != set(loaded_network.bindings.outputs):
            return
        loaded_network.run(dict(feeds), outputs[0])
        original_contents = [array.tobytes() for array in unread_arrays]
        try:
            for array in unread_arrays:
                ctypes.memset(array.ctypes.data, 0x5A, array.nbytes)
            loaded_network.run(dict(feeds), outputs[1])
        finally:
            for array, content in zip(unread_arrays, original_contents, strict=True):
                ctypes.memmove(array.ctypes.data, content, len(content))
        if not all(same(outputs[0][key], outputs[1][key]) for key in outputs[0]):
            yield (
                f"{sample.id}: it says that it keeps copies of its constants, but reads the ones that it was given: "
                "results change when these are overwritten after loading"
            )
    finally:
        loaded_network.release()


def _names_constants(layer: Layer) -> bool:
    """Return False if a layer is a compiled subgraph that does not list the constants that it reads during a run."""
    return not isinstance(layer.op, PreCompiled) or hasattr(layer.op.object, "constants")


def _non_constant_weights(bench: Bench) -> Iterator[str]:
    """Yield an error unless at least one operator takes weights from the caller and computes with them correctly.

    The other operators may refuse such weights.
    """
    if not bench.backend.capabilities.has("NonConstWeights"):
        return
    operators: dict[type, list[Sample]] = {}
    for sample in bench.taken:
        if _has_constant_weights(sample):
            operators.setdefault(type(sample.op), []).append(sample)
    refusals: list[str] = []
    is_accepted = False
    for samples in operators.values():
        for sample in samples:
            with_input_weights = _with_weights_as_input(sample)
            reason = _refused(bench, with_input_weights)
            if reason is None:
                is_accepted = True
                yield from _on_other_weights(bench, with_input_weights)
                break
            refusals.append(f"{sample.id}: {reason}")
    if refusals and not is_accepted:
        _require_all_families(bench, "NonConstWeights")
        yield f"it says that it has NonConstWeights, but refuses all weights that are no constants: {refusals[0]}"


def _has_constant_weights(sample: Sample) -> bool:
    if [operand.name for operand in sample.op.operands[1:2]] != ["weights"] or len(sample.inputs) < 2:
        return False
    return sample.inputs[1] is not None and sample.inputs[1].constant


def _with_weights_as_input(sample: Sample) -> Sample:
    weights = sample.inputs[1]
    assert weights is not None
    return replace(sample, inputs=[sample.inputs[0], replace(weights, constant=False), *sample.inputs[2:]])


def _refused(bench: Bench, sample: Sample) -> str | None:
    """Return the reason why the backend refuses a sample; None if the backend accepts it."""
    view = view_of(sample.network()[0].graph)
    if not all(map(can_be_shaped, view)):
        return "the shape of its result depends on the weights"
    verdict = bench.query(view)[0]
    return None if verdict else "; ".join(verdict.reasons)


def _on_other_weights(bench: Bench, sample: Sample) -> Iterator[str]:
    """Run a sample whose weights are an input, first on its weights and then on different ones; yield errors.

    The network stays loaded in between, so that a backend that stores the first weights is detected.
    """
    claim = f"{sample.id}: it says that it has NonConstWeights, but with weights from the caller"
    network, feeds = sample.network()
    note(f"running {sample.id} with weights from the caller")
    other_feeds = {**feeds, 1: feeds[1][::-1].copy()}
    try:
        with bench.loaded(bench.optimize(network)) as loaded_network:
            for run_feeds in (feeds, other_feeds):
                expected = reference_outputs(network.graph, run_feeds)
                yield from _differing(bench, sample, network, loaded_network.run(run_feeds), expected, claim)
    except InterposerError as error:
        yield f"{claim}: {error}"


def _types(bench: Bench) -> Iterator[str]:
    """Yield an error for each operator that the backend accepts with types that no sample has."""
    for op in dict.fromkeys(type(sample.op) for sample in bench.taken if any(sample.inputs)):
        note(f"asking which types it takes for {op.op_name()}")
        accepted_samples = [sample for sample in bench.samples_of(op) if bench.takes(sample)]
        other_samples = [sample for sample in samples_of(op) if sample not in accepted_samples]
        untried = untried_kinds(
            [*accepted_samples, *other_samples], lambda sample: _is_accepted(bench, sample), _ATTRIBUTES
        )
        if untried:
            yield (
                f"{op.op_name()}: it takes {', '.join(untried)}, which no sample has, so that no check tries them; "
                "declare the types of the kernel (dtypes=...), or add samples of these types"
            )


def _is_accepted(bench: Bench, sample: Sample) -> bool:
    try:
        return bench.takes_all(sample.network()[0].graph)
    except Exception:  # the operator does not allow such tensors
        return False


_CHECKS: Final[dict[str, Callable[[Bench], Iterator[str]]]] = {
    "strided": _strided,
    "in-place": _in_place,
    "dynamic-shapes": _dynamic_shapes,
    "keeps-constants": _keeps_constants,
    "non-constant-weights": _non_constant_weights,
    "types": _types,
}
