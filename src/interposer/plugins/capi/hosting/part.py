"""`HostedPart`: a graph that a host has compiled with a Python backend, and its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interposer.backend import ArrayHandle, Backend, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer, infos_for
from interposer.ops.control import Constant

__all__ = ["HostedPart", "know_infos"]

Handles = dict[Value, TensorHandle]


def know_infos(graph: Graph) -> None:
    """Set the infos of all tensors of a graph to what its tables declare and its operators infer."""
    for layer in graph.topological():
        if infer_layer(layer):
            for value in layer.outputs:
                value.info = value.declared


class HostedPart:
    """The workloads of a graph, one for each layer, in running order. Its tensors are arrays in ordinary memory.

    Args:
        graph: the graph, whose infos are known.
        layers: its layers in running order.
        backend: the backend, which creates the workloads.

    Raises:
        InterposerError: the backend creates no workload for a layer; `compiling` is the layer.
    """

    def __init__(self, graph: Graph, layers: Sequence[Layer], backend: Backend) -> None:
        self.compiling: Layer | None = None
        self._factory = backend.create_workload_factory(None, {})
        self._inputs = [layer.output for layer in graph.inputs]
        self._outputs = [layer.values[0] for layer in graph.outputs]
        self._constants: Handles = {
            layer.output: self._factory.create_constant_handle(layer.output.known, layer.op.value)
            for layer in graph
            if isinstance(layer.op, Constant)
        }
        self._steps = [_Step(layer, self._factory) for layer in layers]
        self._dead_after_step = _last_uses(layers, self._outputs)

    @property
    def concurrent(self) -> bool:
        """True if several threads may run the part concurrently."""
        return all(step.concurrent for step in self._steps)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array | None], between: Callable[[], None]) -> list[Array]:
        """Run the part once and return its results, in the order of the outputs.

        Args:
            inputs: the inputs, which are only read.
            outputs: the arrays for the results; None for results of unknown shape. A result that is computed in another
                array is not copied.
            between: is called before each layer, and raises an exception to end the run.
        """
        target_of_output = {
            value: array for value, array in zip(self._outputs, outputs, strict=True) if array is not None
        }
        handles: Handles = dict(self._constants)
        for value, array in zip(self._inputs, inputs, strict=True):
            handles[value] = ArrayHandle(value.known.with_shape(array.shape), array)
        for step, dead_values in zip(self._steps, self._dead_after_step, strict=True):
            between()
            step.execute(handles, target_of_output)
            for value in dead_values:
                handles.pop(value, None)
        return [_array(handles[value]) for value in self._outputs]


class _Step:
    """One layer with its workload. If shapes are only known in a run, the workload of the last shapes is cached."""

    def __init__(self, layer: Layer, factory: WorkloadFactory) -> None:
        self.layer, self._factory = layer, factory
        infos = [value.info for value in (*layer.values, *layer.outputs)]
        self._has_late_shapes = not all(info is not None and info.is_concrete for info in infos)
        self._info = WorkloadInfo.of(layer)
        self._workload = None if self._has_late_shapes else self._new_workload(self._info)

    @property
    def concurrent(self) -> bool:
        return self._workload is not None and self._workload.concurrent

    def _new_workload(self, info: WorkloadInfo) -> Workload:
        workload = self._factory.create_workload(self.layer, info)
        workload.post_allocation_configure()
        return workload

    def execute(self, handles: Handles, targets: dict[Value, Array]) -> None:
        """Run the layer, and add the handles of its outputs; these use the arrays in `targets` if the shapes fit."""
        inputs = [None if value is None else handles[value] for value in self.layer.inputs]
        workload, infos = self._workload, self._info.outputs
        if workload is None:
            info = _late_info(self.layer, inputs)
            workload, infos = self._new_workload(info), info.outputs
        outputs = [_handle(info, targets.get(value)) for value, info in zip(self.layer.outputs, infos, strict=True)]
        workload.execute(inputs, outputs)
        handles.update(zip(self.layer.outputs, outputs, strict=True))


def _late_info(layer: Layer, inputs: Sequence[TensorHandle | None]) -> WorkloadInfo:
    """Return the infos of a layer's tensors for the shapes of this run, with the values of constants."""
    input_infos = tuple(
        None if handle is None or value is None else _known(value, handle)
        for value, handle in zip(layer.inputs, inputs, strict=True)
    )
    return WorkloadInfo(input_infos, tuple(infos_for(layer, input_infos)))


def _known(value: Value, handle: TensorHandle) -> TensorInfo:
    return value.known if value.is_constant else handle.info


def _handle(info: TensorInfo, target: Array | None) -> ArrayHandle:
    if info.is_concrete and target is not None and target.shape == tuple(info.shape):
        return ArrayHandle(info.with_constant(None), target)
    handle = ArrayHandle(info.with_constant(None))
    if info.is_concrete:
        handle.allocate()
    return handle


def _array(handle: TensorHandle) -> Array:
    if not handle.info.is_concrete:
        raise BackendContractError(f"the workload left the shape of {handle.info} unknown")
    with handle.mapped() as array:
        return array


def _last_uses(layers: Sequence[Layer], outputs: Sequence[Value]) -> list[list[Value]]:
    """Return for each layer the values that no later layer reads, so that their memory can be freed after it."""
    last_reader: dict[Value, int] = {}
    for position, layer in enumerate(layers):
        last_reader |= dict.fromkeys((*layer.values, *layer.outputs), position)
    dead_values: list[list[Value]] = [[] for _ in layers]
    for value in last_reader.keys() - set(outputs):
        dead_values[last_reader[value]].append(value)
    return dead_values
