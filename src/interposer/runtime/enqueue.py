"""Runs of a loaded network: check the arguments, run, and convert the outputs for the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.errors import BindingError
from interposer.core.types import Array, TensorShape
from interposer.runtime.imports import ImportedRun
from interposer.runtime.loaded import LoadedNetwork, check_imports
from interposer.runtime.overlaps import share_memory
from interposer.runtime.runs import RunControl, run_within
from interposer.runtime.working import WorkingMemHandle, check_shape

__all__ = ["run", "run_imported", "run_watched"]


def run(
    loaded: LoadedNetwork,
    inputs: Mapping[int, Any],
    outputs: Mapping[int, Any] | None,
    working: WorkingMemHandle | None = None,
    control: RunControl | None = None,
) -> dict[int, Any]:
    """Check the caller's arrays, run the network once on them, and return the outputs by binding id.

    The run uses `working` as its memory, else idle or new memory, and `control` can stop it. `inputs` and `outputs` are
    those of `Runtime.enqueue_workload`.
    """
    bindings = loaded.bindings
    arrays = bindings.checked_inputs(inputs)
    targets = bindings.new_outputs() if outputs is None else bindings.checked_outputs(outputs)
    loaded.run(arrays, targets, working, control)
    return bindings.given_out(targets)


def run_watched(
    loaded: LoadedNetwork, inputs: Mapping[int, Any], outputs: Mapping[int, Any] | None, control: RunControl | None
) -> dict[int, Any]:
    """Run once as `run` does, and stop at the deadline of `control` if it has one, even if a layer hangs.

    The run is then in a separate thread, which is abandoned at the deadline. It is in this thread if another one
    watches the deadline, and nothing but the result is written.
    """
    if control is None or control.deadline is None:
        return run(loaded, inputs, outputs, None, control)
    if control.is_watched and outputs is None:
        control.abandon = loaded.give_up
        control.check_waiting("a free thread")
        return run(loaded, inputs, None, None, control)
    return _run_apart(loaded, inputs, outputs, control)


def _run_apart(
    loaded_network: LoadedNetwork, inputs: Mapping[int, Any], outputs: Mapping[int, Any] | None, control: RunControl
) -> dict[int, Any]:
    """Run once in a separate thread, and wait for it until the deadline of `control`.

    The thread writes to private arrays, which are copied to `outputs` afterwards, so that an abandoned run does no
    harm.
    """
    output_arrays = {} if outputs is None else loaded_network.bindings.checked_outputs(outputs)
    computed_outputs: dict[int, Any] = run_within(
        control, lambda: run(loaded_network, inputs, None, None, control), loaded_network.give_up
    )
    for output_id, target in output_arrays.items():
        check_shape(
            output_id,
            loaded_network.bindings.outputs[output_id].name,
            TensorShape(computed_outputs[output_id].shape),
            target,
        )
        np.copyto(target, computed_outputs[output_id])
    return {**computed_outputs, **output_arrays}


def run_imported(
    loaded: LoadedNetwork,
    import_ids: tuple[Sequence[int], Sequence[int]],
    inputs: Mapping[int, Any] | None,
    outputs: Mapping[int, Any] | None,
    working: WorkingMemHandle | None = None,
    control: RunControl | None = None,
) -> dict[int, Any]:
    """Run once on imported tensors, and on arrays for the other inputs and outputs; return the outputs by binding id.

    `import_ids` are the import ids of inputs and of outputs. The other arguments are those of `run`.
    """
    imported_run = loaded.imports.run_of(*import_ids)
    if (
        imported_run.complete
        and not inputs
        and not outputs
        and control is None
        and loaded.run_imported(imported_run, working)
    ):
        return dict(imported_run.outputs)
    check_imports(imported_run, control)
    arrays = loaded.bindings.checked_inputs(_with_imported("input", imported_run.inputs, inputs))
    output_arrays = None
    if outputs is not None or imported_run.outputs:
        output_arrays = loaded.bindings.checked_outputs(_targets(loaded, imported_run, outputs))
    _refuse_overlaps(loaded, imported_run, arrays, output_arrays)
    if working is None:
        return run_watched(loaded, arrays, output_arrays, control)
    return run(loaded, arrays, output_arrays, working)


def _targets(
    loaded_network: LoadedNetwork, imported_run: ImportedRun, outputs: Mapping[int, Any] | None
) -> Mapping[int, Any]:
    """Return the arrays that a run writes its outputs to, by binding id.

    These are the imported outputs, and for the others the caller's `outputs`, or new arrays if `outputs` is None.
    """
    if outputs is not None:
        return _with_imported("output", imported_run.outputs, outputs)
    return loaded_network.bindings.new_outputs() | dict(imported_run.outputs)


def _with_imported(kind: str, imported_arrays: Mapping[int, Array], arrays: Mapping[int, Any] | None) -> dict[int, Any]:
    if arrays is not None and not isinstance(arrays, Mapping):
        raise BindingError(f"{kind}s must be a mapping from binding id to array, not {type(arrays).__name__}")
    for binding in arrays or {}:
        if binding in imported_arrays:
            raise BindingError(f"{kind} {binding} is given twice: as it was imported, and as an array")
    return {**(arrays or {}), **imported_arrays}


def _refuse_overlaps(
    loaded_network: LoadedNetwork,
    imported_run: ImportedRun,
    arrays: Mapping[int, Array],
    targets: Mapping[int, Array] | None,
) -> None:
    """Raise `BindingError` if an imported output overlaps an array of the same run, because it would need a copy.

    `arrays` and `targets` are the inputs and outputs of the run by binding id, imported ones included.
    """
    not_imported = [
        ("input", binding, array) for binding, array in arrays.items() if binding not in imported_run.inputs
    ]
    not_imported += [
        ("output", binding, array) for binding, array in (targets or {}).items() if binding not in imported_run.outputs
    ]
    for binding, target in imported_run.outputs.items():
        for kind, other_binding, array in not_imported:
            if share_memory(target, array):
                name = loaded_network.bindings.outputs[binding].name
                raise BindingError(
                    f"output {binding} ({name}) overlaps {kind} {other_binding} in memory; one run cannot use both"
                )
