"""`StateMemory`: the values that the states of a network have between runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.dlpack import as_array
from interposer.core.errors import BindingError, ExecutionError, InvalidArgumentError, did_you_mean
from interposer.core.types import Array
from interposer.ir.graph import binding_id
from interposer.ir.states import State, initial_array
from interposer.kernels.table import empty
from interposer.runtime.runs import RunControl

__all__ = ["StateMemory", "Turn"]

_WAIT_SECONDS: Final = 0.05


class Turn(NamedTuple):
    """The states in one run, by binding id: `values` are read, and `targets` are written.

    A target may be the array that is read, for a state that is updated in place.
    """

    values: dict[int, Array]
    targets: dict[int, Array]


class StateMemory:
    """The values of states by name, shared by all networks that a model loads. Thread-safe.

    A run reads the value of a state and writes the next one to a second array. The arrays change places when the run
    has completed, so a failing run leaves all states as they were. Runs take turns. A state that has no value yet, or a
    value of another shape or type than the network that runs now, begins with its initial value.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: tuple[int, RunControl | None] | None = None
        self._values: dict[str, Array] = {}
        self._spares: dict[str, Array] = {}

    @contextmanager
    def turn(
        self, states: Sequence[State], control: RunControl | None = None, in_place: Mapping[str, bool] | None = None
    ) -> Iterator[Turn]:
        """Wait until no other run uses the states, and yield their arrays for one run; keep the targets if it succeeds.

        `control` can stop the wait. `in_place` says by name how a state is written: True writes to the array that is
        read, False lets the run add the array to `Turn.targets`, and all others are written to a second array.

        Raises:
            ExecutionError: this thread is inside a run that uses the states, or `control` stopped the run.
        """
        with self._locked(control) as is_held:
            write_in_place = {} if in_place is None else in_place
            arrays = {binding_id(state.source): self._value(state) for state in states}
            updated = [state for state in states if state.target is not None]
            preallocated = [state for state in updated if write_in_place.get(state.name, True)]
            turn = Turn(
                arrays,
                {binding_id(state.source): self._target(state, state.name in write_in_place) for state in preallocated},
            )
            yield turn
            if is_held():
                self._keep(updated, turn)

    @contextmanager
    def _locked(self, control: RunControl | None = None) -> Iterator[Callable[[], bool]]:
        """Lock the states; yield a function that returns False once `give_up` has taken the lock away."""
        lock = self._acquire(control)
        try:
            yield lambda: self._lock is lock
        finally:
            if self._lock is lock:
                self._owner = None
            lock.release()

    def _acquire(self, control: RunControl | None) -> threading.Lock:
        while True:
            lock, owner = self._lock, self._owner
            if owner is not None and owner[0] == get_ident():
                raise ExecutionError("this thread is inside a run that uses the same states; it cannot run again")
            if not lock.acquire(timeout=_WAIT_SECONDS):
                if control is not None:
                    control.check_waiting("the run that uses its states")
            elif lock is self._lock:
                self._owner = get_ident(), control
                return lock
            else:
                lock.release()

    def give_up(self, control: RunControl) -> None:
        """Let other runs use the states although the run of `control`, which hangs, has not ended."""
        owner = self._owner
        if owner is not None and owner[1] is control:
            self._spares, self._owner = {}, None
            self._lock = threading.Lock()

    def _value(self, state: State) -> Array:
        array = self._values.get(state.name)
        if array is None or not _fits(state, array):
            array = self._values[state.name] = state.initial
        return array

    def _target(self, state: State, in_place: bool) -> Array:
        if in_place:
            return self._values[state.name]
        spare_array = self._spares.get(state.name)
        return spare_array if spare_array is not None and _fits(state, spare_array) else empty(state.info)

    def _keep(self, states: Sequence[State], turn: Turn) -> None:
        targets = [(state, turn.targets[binding_id(state.source)]) for state in states]
        for state, target in targets:
            if not _fits(state, target):
                raise ExecutionError(
                    f"the state {state.name!r} is {state.info}, but its new value has shape {list(target.shape)}",
                    layer=state.source.name,
                )
        for state, target in targets:
            previous_array = self._values[state.name]
            if target is not previous_array:
                self._spares[state.name], self._values[state.name] = previous_array, target

    def snapshot(self, states: Sequence[State]) -> dict[str, Array]:
        """Return copies of the values of these states by name; wait for a run that uses them."""
        with self._locked():
            return {state.name: np.array(self._value(state)) for state in states}

    def assign(self, states: Sequence[State], values: Mapping[str, Any]) -> None:
        """Give some of these states values by name, which are copied; wait for a run that uses them.

        Raises:
            BindingError: there is no such state, or a value has another shape or type; no state is changed then.
        """
        states_by_name = {state.name: state for state in states}
        unknown_name = next((name for name in values if name not in states_by_name), None)
        if unknown_name is not None:
            raise BindingError(
                f"the model has no state {unknown_name!r}{did_you_mean(str(unknown_name), states_by_name)}"
            )
        arrays = {name: _checked_value(states_by_name[name], value) for name, value in values.items()}
        with self._locked():
            self._values.update(arrays)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the values at the end of a ``with`` block, so that runs in the block have no effect on the states."""
        with self._locked():
            values = {name: np.array(array) for name, array in self._values.items()}
        try:
            yield
        finally:
            with self._locked():
                self._values = values

    def exchange(self, values: dict[str, Array]) -> dict[str, Array]:
        """Replace all values by `values`, without copies, and return the earlier ones; wait for a run that uses them.

        States without a value get their initial ones.
        """
        with self._locked():
            earlier_values, self._values = self._values, values
            return earlier_values

    def reset(self) -> None:
        """Give all states their initial values; wait for a run that uses them."""
        with self._locked():
            self._values = {}


def _fits(state: State, array: Array) -> bool:
    return array.shape == tuple(state.info.shape) and array.dtype == state.info.dtype.numpy


def _checked_value(state: State, array_like: Any) -> Array:
    title = f"the value of the state {state.name!r}"
    try:
        array = as_array(array_like, title) if hasattr(array_like, "__dlpack__") else array_like
        return np.array(initial_array(title, state.info, array))
    except (InvalidArgumentError, ValueError, TypeError) as error:
        raise BindingError(str(error)) from error
