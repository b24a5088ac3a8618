"""`LoadedVariants`: the loaded networks of a model, one for each set of input shapes and values."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from interposer.core.constants import give_back_pages
from interposer.core.errors import (
    BackendContractError,
    BackendUnavailableError,
    DeadlineExceededError,
    ExecutionError,
    IncompatibleMemoryError,
    InterposerError,
    InvalidArgumentError,
    InvalidOperandError,
    InvalidValueError,
    LoadError,
    ParseError,
    RunCancelledError,
    UnknownNetworkError,
    UnsupportedLayerError,
    culprit,
)
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.ops.control import Constant
from interposer.report.estimate import Estimate
from interposer.report.optimized import OptimizedNetwork
from interposer.report.records import Message
from interposer.runtime import NetworkId, Runtime, StateMemory
from interposer.runtime.refused_values import refused_value
from interposer.session.fallback import Choice
from interposer.session.fast_path import Expected, FastPath
from interposer.session.limits import Limits
from interposer.session.variants import Blueprint, FirstVariant, Key

__all__ = ["CACHED", "LoadedVariants", "Variant"]

_log: Final = logging.getLogger("interposer.session")
CACHED: Final = 8
"""Number of variants that a model caches, one per set of input shapes.

The least recently used variant is dropped first.
"""
_Variants: TypeAlias = "OrderedDict[Key, Variant]"


class Variant(NamedTuple):
    """A network that is optimized and loaded: its key, its id in the runtime, and its optimized form."""

    key: Key
    network_id: NetworkId
    optimized: OptimizedNetwork


class LoadedVariants:
    """The networks that a model has loaded into its runtime, each for one set of input shapes and values.

    Several threads may use it at the same time. `lock` guards everything but two attributes, which are replaced as a
    whole and may be read at any time. `fast_path` is the way to run if only one network is loaded, and otherwise None.
    `current` is the variant of the last call, or None before the first one. It stays the same while a network is
    built again without a backend that failed, so that a description of the model always finds a network.

    A network is in use between `begin` and `end`. If a backend fails, `do_without` unloads the networks that use it,
    and `begin` builds them again for the other backends.

    Args:
        blueprint: builds the network for given shapes and values.
        choice: the backends, of which some may have failed before.
        limits: what a network may need.
        states: the memory of the states, which all variants share.
    """

    def __init__(self, blueprint: Blueprint, choice: Choice, limits: Limits, states: StateMemory) -> None:
        self.runtime, self.states = choice.runtime, states
        self.blueprint, self.choice, self._limits = blueprint, choice, limits
        self.by_key: _Variants = OrderedDict()
        self.estimate: Estimate | None = None
        self.lock = threading.RLock()
        self.is_closed = False
        self.fast_path: FastPath | None = None
        self.current: Variant | None = None
        self._calls: dict[Key, int] = {}
        weakref.finalize(self, _forget, self.runtime, self.by_key).atexit = False

    def prepare(self) -> None:
        """Load the network for all calls, if the shapes and values of all inputs that it depends on are known."""
        first_variant = self.blueprint.first()
        if first_variant is None:
            return
        if self._usable(first_variant):
            self._make(*first_variant)
        else:
            self._make_within_limits(first_variant.key, first_variant.network())

    def prepare_again(self, blueprint: Blueprint) -> None:
        """Unload all networks, and load those of another blueprint from now on."""
        self.blueprint.free_after_last_use()
        self.blueprint = blueprint
        self.drop(self.by_key)
        self.prepare()

    @property
    def latest(self) -> Variant:
        """The variant of the last call, which may be unloaded in the meantime; never waits.

        Raises:
            InvalidArgumentError: the model is closed, or nothing was loaded as shapes or values of inputs are unknown.
        """
        current_variant = self.current
        self.check_open()
        if current_variant is None:
            lacking_text, load_arguments = self.blueprint.lacking, self.blueprint.arguments
            raise InvalidArgumentError(
                f"{lacking_text} are not known yet; run the model once, or give load(..., {load_arguments})"
            )
        return current_variant

    def latest_loaded(self) -> Variant:
        """Return the variant of the last call, and load it if a failed backend has been removed from it since.

        The lock must be held.

        Raises:
            InvalidArgumentError: the model is closed, or nothing was loaded as shapes or values of inputs are unknown;
                or the network depends on values of inputs, and has to be built again for those of a call.
            InterposerError: the network cannot be built again.
        """
        latest = self.latest
        if latest.key in self.by_key:
            return latest
        if latest.key.values:
            raise InvalidArgumentError(f"{self.blueprint.lacking} are not known any more; run the model once")
        names_and_shapes = zip(self.blueprint.inputs, latest.key.shapes, strict=True)
        shaped_arrays = {
            name: np.broadcast_to(np.empty((), np.uint8), tuple(map(int, shape))) for name, shape in names_and_shapes
        }
        self._variant(shaped_arrays, set())
        return self.latest

    def has(self, arrays: Mapping[str, Array]) -> bool:
        """Return True if the network for the shapes and values of these inputs is loaded. The lock must be held."""
        return self.blueprint.key(arrays) in self.by_key

    def begin(self, arrays: Mapping[str, Array], disabled: set[str] | None = None) -> tuple[Key, NetworkId]:
        """Return the key and the network id of the network for the shapes and values of these inputs.

        It is not unloaded before `end` is called with the key. `disabled` are the backends that this call has disabled;
        those that fail now are added. If no network can be built, backends that were disabled before are enabled again.
        That is not so if some have failed during the call: then the error is raised.

        Raises:
            InvalidArgumentError: the model is closed.
            InterposerError: the network cannot be built for these shapes or values.
        """
        with self.lock:
            key = self._variant(arrays, set() if disabled is None else disabled)
            return self._begun(key)

    def begin_like_the_last(self) -> tuple[Key, NetworkId]:
        """Like `begin`, for the shapes and values of the last call; raise `InvalidArgumentError` if there was none."""
        with self.lock:
            return self._begun(self.latest_loaded().key)

    def _begun(self, key: Key) -> tuple[Key, NetworkId]:
        self._calls[key] = self._calls.get(key, 0) + 1
        return key, self.by_key[key].network_id

    def end(self, key: Key) -> None:
        """End a call that `begin` has begun, so that its network may be unloaded."""
        with self.lock:
            remaining_calls = self._calls.pop(key) - 1
            if remaining_calls:
                self._calls[key] = remaining_calls

    def do_without(self, error: InterposerError, disabled: set[str]) -> bool:
        """Stop using the backend that caused an error, and unload the networks that use it.

        They are built again on demand. The id of the backend is added to `disabled`, the backends that one call has
        disabled. Returns False if this is not possible, because no backend caused the error or fallback does not allow
        it.
        """
        with self.lock:
            failed_backend = self.choice.quarantine(error)
            if not failed_backend:
                return False
            self.drop(key for key, variant in self.by_key.items() if failed_backend in variant.optimized.backends)
            # last, so that variants are dropped once the event is visible
            self.choice.note(failed_backend, error, self.blueprint.name)
            disabled.add(failed_backend)
            return True

    def check_values(self, error: InterposerError, inputs: Callable[[], Mapping[str, Array]]) -> None:
        """Raise `InvalidValueError` if a run failed with `error` because a layer cannot use a value of its inputs.

        For backends that cannot say so themselves. `inputs` returns the inputs of the run by name.
        """
        is_failure = isinstance(error, ExecutionError) and not isinstance(
            error, InvalidValueError | RunCancelledError | DeadlineExceededError
        )
        if not is_failure or not culprit(error):
            return
        try:
            arrays = inputs()
            variant = self._variant_of(arrays)
            refusal = variant and refused_value(variant.optimized.divided(), arrays, self.states.snapshot)
        except Exception as failure:
            _log.debug("the values of a failed run cannot be checked: %s", failure)
            return
        if refusal is not None:
            raise refusal from error

    def _variant_of(self, arrays: Mapping[str, Array]) -> Variant | None:
        """Return the variant for the shapes and values of these inputs, which may be unloaded; None if it is gone."""
        with self.lock:
            key, current_variant = self.blueprint.key(arrays), self.current
            return self.by_key.get(key) or (
                current_variant if current_variant is not None and current_variant.key == key else None
            )

    def is_replaced(
        self, error: ExecutionError | LoadError | UnknownNetworkError, events_before: int, disabled: set[str]
    ) -> bool:
        """Return True if the backend that failed is no longer used, so that the run can be repeated without it.

        This thread disables it and adds it to `disabled`, unless another one has done so since the number of events was
        `events_before`. A run that may have overwritten its own inputs or states cannot be repeated, and one that
        failed because of its inputs need not be.
        """
        if isinstance(error, InvalidValueError) or (isinstance(error, ExecutionError) and error.overwrites):
            return False
        return self.do_without(error, disabled) or self.choice.num_events > events_before

    def check_repeatable(
        self, error: ExecutionError | LoadError | UnknownNetworkError, path: FastPath, events_before: int
    ) -> set[str]:
        """Return which backends were disabled, if a run on the fast path `path` that failed can be repeated.

        It can be repeated in the ordinary way if another thread has unloaded the network in the meantime, or if the
        failed backend is no longer used: see `is_replaced`.

        Raises:
            InterposerError: `error`, with the reasons why other backends were disabled.
        """
        disabled: set[str] = set()
        is_unloaded = isinstance(error, UnknownNetworkError) and path is not self.fast_path
        if not is_unloaded and not self.is_replaced(error, events_before, disabled):
            raise self.given_up(error, disabled) from error.__cause__
        return disabled

    def given_up(self, error: InterposerError, disabled: set[str]) -> InterposerError:
        """Return the error to raise when no backend is left.

        The backends that this call has disabled, `disabled`, are enabled again, because the error is not specific to
        one of them.
        """
        with self.lock:
            error_with_reasons = self.choice.with_reasons(error)
            self._enable_again(disabled, "the other backends failed as well")
            return error_with_reasons

    def blame_values(self, disabled: set[str]) -> None:
        """Enable the backends again that this call has disabled, as its inputs turned out to be invalid."""
        if disabled:
            with self.lock:
                self._enable_again(disabled, "the values of the inputs were the cause")

    def _enable_again(self, disabled: Collection[str], reason: str) -> None:
        if disabled and not self.is_closed:
            self.drop(self.by_key)
            self.choice.enable_again(disabled, reason)

    def drop(self, keys: Iterable[Key]) -> None:
        """Unload the networks with these keys (variants for some input shapes and values).

        A call that needs one of them builds it again.
        """
        self.fast_path = None
        for key in tuple(keys):
            variant = self.by_key.pop(key)
            self.runtime.unload_later(variant.network_id)
            variant.optimized.free_after_last_use()

    def check_open(self) -> None:
        """Raise `InvalidArgumentError` if the model is closed."""
        if self.is_closed:
            raise InvalidArgumentError(f"the model {self.blueprint.name!r} is closed")

    def close(self) -> None:
        """Unload all networks; raise `LoadError` if the context of a backend refuses to unload one of them."""
        self.is_closed, self.fast_path = True, None
        for key in tuple(self.by_key):
            self._unload(key)
        self.current = None
        self.blueprint.free_after_last_use()

    def _variant(self, arrays: Mapping[str, Array], disabled: set[str]) -> Key:
        """Return the key of the network for the shapes and values of these inputs; build and load it if it is missing.

        A variant is the network specialised for one set of shapes and values. If there are too many, the oldest is
        unloaded. `disabled` are the backends that this call has disabled.
        """
        self.check_open()
        key = self.blueprint.key(arrays)
        if key not in self.by_key:
            known_network = self.blueprint.known(key)
            if known_network is not None and self._usable(known_network):
                self._make(*known_network, disabled=disabled)
            else:
                network = self._built(arrays) if known_network is None else known_network.network()
                key = self.blueprint.key(arrays)
                self._make_within_limits(key, network, disabled)
                network.graph.free_after_last_use()
            self._make_room(key)
        self.by_key.move_to_end(key)
        self.current = self.by_key[key]
        return key

    def _built(self, arrays: Mapping[str, Array]) -> Network:
        """Return the network for these inputs; raise `InvalidValueError` if their values make it impossible."""
        try:
            return self.blueprint.variant(arrays)
        except ParseError as error:
            if not self.blueprint.needed:
                raise
            refusal = error.refusal if isinstance(error, InvalidOperandError) else InvalidValueError(str(error))
            message = f"the network cannot be built for these values of {', '.join(map(repr, self.blueprint.needed))}"
            raise refusal.located(f"{message}: {error}", layer=refusal.layer, backend="") from error

    def _usable(self, variant: FirstVariant) -> bool:
        """Return True if a variant is optimized already, for backends of which none is disabled for this model."""
        optimized = variant.optimized
        return optimized is not None and not self.choice.disabled & optimized.backends.keys()

    def _make_within_limits(self, key: Key, network: Network, disabled: set[str] | None = None) -> None:
        self.estimate = self._limits.check(network.graph)
        self._make(key, lambda: network, disabled=disabled)

    def _make(
        self,
        key: Key,
        network: Callable[[], Network],
        known_network: OptimizedNetwork | None = None,
        disabled: set[str] | None = None,
    ) -> None:
        """Optimize and load the network for one set of input shapes and values (a variant), and store it under `key`.

        `network` builds it. `known_network` is its optimized network if that is in the cache; it is then not optimized
        again. Backends that fail in doing so are disabled, if fallback allows that, and added to `disabled`, the
        backends that this call has disabled. The others that are disabled are enabled again if there is no other way.
        """
        disabled_now = set[str]() if disabled is None else disabled
        while True:
            try:
                optimized = self._optimized(network()) if known_network is None else known_network
                network_id = self.runtime.load_network(optimized, self.states, self._limits.room(self.estimate))
                if known_network is None and not self.runtime.memory(network_id).mapped_constants:
                    give_back_pages(layer.op.value for layer in network().graph if isinstance(layer.op, Constant))
                self.by_key[key] = self.current = Variant(key, network_id, optimized)
                self.fast_path = self._alone(key, network_id)
                return
            except (BackendUnavailableError, UnsupportedLayerError):
                if not self.choice.disabled or self.choice.disabled & disabled_now:
                    raise
                self.choice.enable_again(self.choice.disabled, "the network cannot be built without it")
            except (LoadError, BackendContractError, IncompatibleMemoryError) as error:
                known_network = None
                if not self.do_without(error, disabled_now):
                    raise self.choice.with_reasons(error) from error.__cause__

    def _optimized(self, network: Network) -> OptimizedNetwork:
        """Return the network divided among the backends, with messages about why a saved one was not used."""
        optimized, notes = self.choice.optimized(network), self.blueprint.notes
        for note in notes:
            _log.warning("%s: %s", self.blueprint.name, note)
        return replace(
            optimized, messages=(*optimized.messages, *(Message("warning", note, passing=True) for note in notes))
        )

    def _alone(self, key: Key, network_id: NetworkId) -> FastPath | None:
        """Return the fast way to run the loaded network with this key if it is the only one, else None.

        It only takes calls with the values of inputs for which the network was built, if layers depend on them.
        """
        if len(self.by_key) > 1 or tuple(name for name, _ in key.values) != self.blueprint.needed:
            return None
        infos, names = self.blueprint.inputs, tuple(self.blueprint.inputs)
        expected = []
        for name, value in key.values:
            position = names.index(name)
            shape = tuple(map(int, key.shapes[position]))
            expected.append(Expected(position, shape, infos[name].dtype.numpy, value))
        return FastPath(self.runtime, network_id, names, expected)

    def _make_room(self, new_key: Key) -> None:
        idle_keys = [key for key in self.by_key if key not in self._calls and key != new_key]
        for key in idle_keys[: max(0, len(self.by_key) - CACHED)]:
            self._unload(key)

    def _unload(self, key: Key) -> None:
        with suppress(UnknownNetworkError):  # the runtime is closed already
            self.runtime.unload_network(self.by_key[key].network_id)
        self.by_key.pop(key).optimized.free_after_last_use()


def _forget(runtime: Runtime, variants: _Variants) -> None:
    for variant in variants.values():
        runtime.unload_later(variant.network_id)
