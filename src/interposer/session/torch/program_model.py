"""`ProgramModel`: a model of an exported program, called as the module that it was exported from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from interposer.core.errors import BindingError, InvalidArgumentError
from interposer.core.types import Array, TensorShape
from interposer.frontends.template import Template
from interposer.frontends.torch.archive import program_of
from interposer.frontends.torch.program import Program, bound_sizes, read
from interposer.frontends.torch.sources import Weight
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions
from interposer.runtime import PendingRun, Runtime
from interposer.session.bound import BoundRun
from interposer.session.imports import ImportedTensors
from interposer.session.limits import Limits
from interposer.session.model import Model
from interposer.session.placement.plan import Plan
from interposer.session.request import LoadRequest
from interposer.session.source import read_source
from interposer.session.torch.binding import bound_arguments, has_tensors, structured
from interposer.session.torch.plain_calls import PlainCalls
from interposer.session.torch.watching import Watch
from interposer.session.variants import Blueprint

__all__ = ["ProgramModel", "load_program"]


class ProgramModel(Model):
    """A model of a `torch.export.ExportedProgram`, which `load` returns.

    A call takes the arguments of the module and returns its results in the module's own structure: ``model(x, mask=m)``
    returns what ``module(x, mask=m)`` returns. If an argument is a tensor, the results are tensors; otherwise they are
    arrays. The methods `run`, `submit` and `bind` take inputs by name and return arrays, as those of any model. They
    return the new values of inputs that the program changes in place as outputs; a call writes them to the arguments.

    The weights are shared with the module. A change in place is noticed at the next call, and the network is prepared
    again; see `refresh` for changes that PyTorch does not count. Parameters that the module replaces are not part of
    the exported program. Buffers that the program changes are states of the model, which begin with the values that the
    buffers have when the model is loaded. The module's own buffers do not change. `state` and `reset_state` are as for
    any model.
    """

    needs_origin = True

    def __init__(
        self,
        source: Network | Template,
        program: Program,
        runtime: Runtime,
        backends: Iterable[str] | None = None,
        options: OptimizerOptions | None = None,
        limits: Limits | None = None,
        fallback: bool | None = None,
        plan: Plan | None = None,
        *,
        argument_names: Sequence[str] | None = None,
        is_shared: bool = True,
    ) -> None:
        """Make a model of the network or template `source` of a program.

        `argument_names` are the names of the module's arguments that the export has used; None lets calls take inputs
        by name only, for a network with other inputs or outputs than the program. `is_shared` is False if nothing else
        can change the weights.
        """
        self._program, self._source, self._is_shared = program, source, is_shared
        self._argument_names = None if argument_names is None else tuple(argument_names)
        self._watch = self._new_watch()
        super().__init__(source, runtime, backends, options, limits, fallback, plan)
        self._execution.check_inputs = partial(_check_sizes, program)
        names = self._argument_names
        self._plain = None if names is None else PlainCalls.of(program, names, tuple(self.inputs))

    def _new_watch(self) -> Watch:
        sources = self._program.sources.values() if self._is_shared else ()
        return Watch([source.tensor for source in sources if isinstance(source, Weight)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once with the arguments of the module, and return its results in the module's structure.

        Arguments may be positional or keywords in any order, and nested as in the export. Tensors of PyTorch, arrays
        and anything that `run` takes are accepted in place of tensors. Arguments that the module changes in place are
        changed. A single mapping from the names of the network's inputs to their values is accepted too; the results
        are then as of a call of any other model.

        Raises:
            BindingError: arguments are missing, unknown, or have another structure, shape or type than in the export;
                or sizes violate what the export requires of them, such as two equal dimensions.
            InterposerError: any other error that `run` raises.
        """
        plain = self._plain
        plain_arrays = None if plain is None else plain.arrays(args, kwargs)
        if plain_arrays is not None and plain is not None:
            arrays, as_tensors = plain_arrays
            return plain.results(self.run(arrays), as_tensors=as_tensors)
        if self._argument_names is None or (not kwargs and len(args) == 1 and self._is_by_name(args[0])):
            return super().__call__(*args, **kwargs)
        return self._called(args, kwargs)

    def _called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run once with the arguments of the module."""
        assert self._argument_names is not None
        binding = bound_arguments(self._program, self._argument_names, args, kwargs)
        inputs = binding.inputs()
        outputs = dict(zip(self.outputs, self.run({name: inputs[name] for name in self.inputs}), strict=True))
        if self._program.mutated_inputs:
            binding.write_back(outputs)
        return structured(self._program, outputs, as_tensors=has_tensors(binding.leaves))

    def _is_by_name(self, argument: Any) -> bool:
        """Return True if a call's only argument is a mapping by input names, and no argument of the module."""
        is_mapping = isinstance(argument, ImportedTensors) or (
            isinstance(argument, Mapping) and set(argument) == set(self.inputs)
        )
        first = self._program.in_spec.child(0)
        takes_mapping = first.num_children == 1 and not first.child(0).is_leaf()
        return is_mapping and not takes_mapping

    def refresh(self) -> None:
        """Prepare the network again from the present values of the weights.

        Calls do so themselves if PyTorch has counted a change of a weight, or if some elements of it differ. Changes
        that PyTorch does not count are writes through ``tensor.data``, or through an array over the same memory: call
        this method after such a change of a few elements.
        """
        with self._loaded.lock:
            self._loaded.check_open()
            self._prepare_again()

    def _refresh_if_changed(self) -> bool:
        """Prepare the network again if weights have changed, and return True if they have."""
        if not self._watch.tensors or not self._watch.has_changed():
            return False
        with self._loaded.lock:
            if self._watch.has_changed():
                self._prepare_again()
        return True

    def _prepare_again(self) -> None:
        """Read the weights again, and unload all networks that have the old ones."""
        if not isinstance(self._source, Template):
            raise InvalidArgumentError(
                f"weights of the model {self.name!r} have changed since it was cut at the inputs that load was given; "
                "load the program again"
            )
        watch = self._new_watch()
        blueprint = Blueprint(self._source)
        for relative in self._relatives.clear():
            relative.close()
        self._loaded.prepare_again(blueprint)
        self._watch = watch  # last: until then, other threads see the change, and wait for the new network

    def run(self, inputs: Any = None, outputs: Any = None, **others: Any) -> list[Any]:
        """Run the network once with inputs by name, and return its outputs; see `Model.run`."""
        self._refresh_if_changed()
        return super().run(inputs, outputs, **others)

    def submit(self, inputs: Any = None, outputs: Any = None, **others: Any) -> PendingRun:
        """Run once in a worker thread; see `Model.submit`."""
        self._refresh_if_changed()
        return super().submit(inputs, outputs, **others)

    def bind(self, inputs: Any, outputs: Any = None) -> BoundRun:
        """Bind the model to arrays that it reads and writes; see `Model.bind`.

        Calls of the result notice changed weights like those of the model.
        """
        self._refresh_if_changed()
        bound = super().bind(inputs, outputs)
        if self._watch.tensors:
            bound.before_each = self._refresh_if_changed
        return bound

    def __copy__(self) -> Model:
        return ProgramModel(
            self._source, self._program, self.runtime, **self._choice.arguments, limits=self._limits,
            argument_names=self._argument_names, is_shared=self._is_shared,
        )  # fmt: skip


def _check_sizes(program: Program, arrays: Mapping[str, Array]) -> None:
    """Raise `BindingError` if shapes violate the ranges and equalities of sizes that the export has recorded."""
    try:
        bound_sizes(program, {name: TensorShape(array.shape) for name, array in arrays.items()})
    except InvalidArgumentError as error:
        raise BindingError(str(error).removeprefix("shapes: ")) from error


def load_program(request: LoadRequest) -> ProgramModel:
    """Return the model of an exported program, or of a file of `torch.export.save`.

    The model takes inputs by name only if the request has other inputs or outputs than the program, or values of
    inputs.
    """
    source, reading = request.source, request.reading
    is_file = isinstance(source, str | os.PathLike | bytes | bytearray | memoryview)
    exported_program = (
        program_of(os.fsdecode(source) if isinstance(source, os.PathLike) else source) if is_file else source
    )
    program = read(exported_program)
    by_name = reading.inputs is not None or reading.outputs is not None or bool(reading.values)
    return ProgramModel(
        read_source(program, reading._replace(format="torch")), program, request.runtime, request.backends,
        request.options, request.limits, request.fallback, request.plan,
        argument_names=None if by_name else _argument_names(exported_program), is_shared=not is_file,
    )  # fmt: skip


def _argument_names(exported_program: Any) -> tuple[str, ...]:
    """Return the names of the module's arguments that the export has recorded; empty if it has not."""
    signature = exported_program.module_call_graph[0].signature if exported_program.module_call_graph else None
    return tuple(getattr(signature, "forward_arg_names", None) or ())
