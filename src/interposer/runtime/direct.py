"""Direct calls of a loaded network that is one compiled part of a plug-in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from interposer.backend import Workload
from interposer.ir.graph import binding_id
from interposer.runtime.bindings import Bindings
from interposer.runtime.steps import Steps, failure

if TYPE_CHECKING:
    from interposer.plugins.capi.running._direct import DirectCall

__all__ = ["direct_call"]


def direct_call(
    steps: Steps, bindings: Bindings, inputs: Sequence[int], runs: dict[int, Any], left: Callable[[], object]
) -> DirectCall | None:
    """Return a call that runs a network without the tensors of `steps`, or None if its runs need them.

    Args:
        steps: the steps of the network.
        bindings: the inputs and outputs of the network.
        inputs: the binding ids of the inputs in the order of the calls; the outputs are in the order of their ids.
        runs: gets an item for each run in progress, by thread.
        left: is called at the end of a run if the call was closed during it.
    """
    step = steps.only_step
    if step is None or not _runs_a_part(step.workload):
        return None
    from interposer.plugins.capi.running import direct  # noqa: PLC0415 - only where there are plug-ins

    outputs = sorted(bindings.outputs)
    arguments, results = ({number: place for place, number in enumerate(ids)} for ids in (inputs, outputs))
    read = {layer.output: arguments[binding_id(layer)] for layer in steps.inputs}
    written = {layer.values[0]: results[binding_id(layer)] for layer in steps.outputs}
    workload: Any = step.workload
    values = [step.layer.inputs[operand] for operand in workload.operands]
    around = direct.Surroundings(
        inputs=[(bindings.inputs[number].name, bindings.inputs[number].info) for number in inputs],
        outputs=[(bindings.outputs[number].name, bindings.outputs[number].info) for number in outputs],
        operands=tuple(read[value] for value in values if value is not None),
        results=tuple(written[value] for value in step.layer.outputs),
        constants=bindings.constants.ranges,
        runs=runs,
        failed=partial(failure, step.layer, "failed"),
        left=left,
    )
    return direct.direct_call(workload, around)


def _runs_a_part(workload: Workload) -> bool:
    """Return True if the workload runs a compiled part of a plug-in, so that a direct call may run it.

    False if its method `execute` is overridden, such as by a wrapper.
    """
    dynamic = sys.modules.get("interposer.plugins.capi.running.workload")  # only imported where there are plug-ins
    execute = getattr(workload.execute, "__func__", None)  # an instance may override it
    return dynamic is not None and execute is dynamic.DynamicWorkload.execute
