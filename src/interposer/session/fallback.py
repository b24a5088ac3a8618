"""Fallback: which backends a model still uses after failures, and which backend an error belongs to."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final

from interposer.backend import BackendEvent, Options
from interposer.backend.events import ENABLED_AGAIN, REPLACED
from interposer.backend.ids import listed_ids
from interposer.core.errors import (
    BackendUnavailableError,
    DeadlineExceededError,
    InterposerError,
    InvalidArgumentError,
    InvalidValueError,
    UnsupportedLayerError,
    culprit,
)
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions, check_choice, optimize
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import Runtime
from interposer.session.placement.plan import Plan

__all__ = ["AUTO", "Choice", "asks_to_measure", "chosen_ids", "used_options"]

AUTO: Final = "auto"
"""The pseudo backend id that requests the fastest combination of all backends, found by measuring."""
EVENTS: Final = 1000
"""The number of events that a model keeps; the oldest are dropped first."""
MOST_LINES: Final = 10
"""The most lines in the log per minute about one kind of event of one backend."""
_log = logging.getLogger("interposer.session")


def chosen_ids(backends: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the backend ids, with "auto" in lower case; None if `backends` is None.

    Raises:
        InvalidArgumentError: an element is not an id, there are no ids, or "auto" is combined with other ids.
    """
    if backends is None:
        return None
    ids = tuple(AUTO if backend.lower() == AUTO else backend for backend in listed_ids(backends))
    if not ids:
        raise InvalidArgumentError("no backends were given; name some, or give None for all that are available")
    if AUTO in ids and len(ids) > 1:
        raise InvalidArgumentError(
            f"backends: {AUTO!r} chooses among all backends, so it stands alone; to measure which of some backends is "
            "fastest, name these and give options=OptimizerOptions(placement='measured')"
        )
    return ids


def used_options(model_options: Mapping[str, Options] | None, backends: Iterable[str] | None) -> dict[str, Options]:
    """Return the options of those backends in `backends`; None and "auto" stand for all backends."""
    ids = None if backends is None else tuple(backends)
    options = model_options or {}
    return {backend: options[backend] for backend in options if ids is None or AUTO in ids or backend in ids}


def _is_auto(backends: tuple[str, ...] | None) -> bool:
    return backends == (AUTO,)


def asks_to_measure(backends: tuple[str, ...] | None, options: OptimizerOptions | None) -> bool:
    """Return True if the backends are "auto", or the options ask for a measured placement."""
    return _is_auto(backends) or (options is not None and options.placement == "measured")


class Choice:
    """Chooses the backends of one model, and disables backends that fail for it.

    Args:
        runtime: the runtime that loads the model.
        backends: backend ids in order of preference; None means those that `optimize` uses by default. "auto" measures
            which combination of backends, engines included, is fastest.
        options: options of the optimizer.
        fallback: False never disables a backend. None disables none for exceeding a deadline.
        plan: a combination of backends that was measured before, in place of `backends`.

    The set `disabled` has the ids of the backends that are disabled for this model. Not safe to change from several
    threads.
    """

    def __init__(
        self,
        runtime: Runtime,
        backends: Iterable[str] | None,
        options: OptimizerOptions | None,
        fallback: bool | None,
        plan: Plan | None = None,
    ) -> None:
        ids = chosen_ids(backends)
        if plan is not None and ids is not None:
            raise InvalidArgumentError(
                f"a plan has its own backends ({', '.join(plan.backends)}): give either a plan or backends, not both; "
                "dataclasses.replace(plan, backends=...) has others"
            )
        self.runtime, self.fallback, self.plan = runtime, fallback, plan
        self._given_plan = plan
        self.used_plan = plan
        if asks_to_measure(ids, options):
            options = replace(options or OptimizerOptions(), placement="measured")
            ids = None if _is_auto(ids) else ids
        self.events: tuple[BackendEvent, ...] = ()
        self.num_events = 0
        self._backends = ids
        self._options = options
        self.disabled: frozenset[str] = frozenset()
        self._quarantined: dict[str, str] = {}
        self._faulty: set[str] = set()
        self._times: dict[tuple[str, str], deque[float]] = {}
        self._is_fork = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `load` that create such a choice, without what was learned from failures since."""
        return {
            "backends": self._backends,
            "options": self._options,
            "fallback": self.fallback,
            "plan": self._given_plan,
        }

    def fork(self) -> Choice:
        """Return an independent copy for another model of the same network: a copy, or one with other outputs.

        It has the same backends disabled, follows a placement that was measured already, and does not measure again.
        """
        forked_choice = copy(self)
        forked_choice.plan = self.used_plan
        forked_choice.num_events = 0
        forked_choice.events, forked_choice._quarantined, forked_choice._faulty = (
            (),
            dict(self._quarantined),
            set(self._faulty),
        )
        forked_choice._times, forked_choice._is_fork = {}, True
        return forked_choice

    def check(self) -> None:
        """Check what needs no network, for a model whose network is only built in its first call.

        Raises:
            InterposerError: no backend is available, or options name an unknown backend or have an unknown key.
        """
        ids = self._backends if self.plan is None else self.plan.backends
        check_choice(ids, self.runtime.device_spec, OptimizerOptions() if self._options is None else self._options)

    def optimized(self, network: Network) -> OptimizedNetwork:
        """Return the network, divided among the backends that are not disabled.

        Raises:
            InterposerError: any error that `optimize` raises. If no backend accepts a layer, the message also says why
                other backends were disabled.
        """
        try:
            optimized = self._divided(network)
        except (BackendUnavailableError, UnsupportedLayerError) as error:
            raise self.with_reasons(error) from error.__cause__
        self._note_problems(optimized)
        return optimized

    def _divided(self, network: Network) -> OptimizedNetwork:
        options = OptimizerOptions() if self._options is None else self._options
        if self.plan is not None or options.placement == "measured":
            return self._measured(network, options)
        if not self._quarantined:
            return optimize(network, self._backends, self.runtime.device_spec, self._options)
        hints = {layer: backend for layer, backend in options.hints.items() if backend not in self._quarantined}
        return optimize(network, self._left(), self.runtime.device_spec, replace(options, hints=hints))

    def _measured(self, network: Network, options: OptimizerOptions) -> OptimizedNetwork:
        from interposer.session.placement import Search  # noqa: PLC0415 - seldom needed
        from interposer.session.placement.measured import place, planned  # noqa: PLC0415 - seldom needed

        search = Search() if options.budget_seconds is None else Search(options.budget_seconds)
        options = replace(options, placement="order", budget_seconds=None)
        plan = self.plan
        if self._quarantined and self.used_plan is not None:
            return planned(network, self.used_plan, self.runtime, options, without=self._quarantined)
        if plan is None:
            plan = place(network, self.runtime, self._backends, options, search)
        self.used_plan = plan
        self._note_failures(plan)
        return planned(network, plan, self.runtime, options, logs=not self._is_fork)

    def _note_failures(self, plan: Plan) -> None:
        """Record an event for each backend that failed while the placement of `plan` was measured."""
        for backend, reason in plan.failed.items():
            if backend not in self._faulty and plan is not self.plan:
                self._faulty.add(backend)
                message = (
                    f"the placement of {plan.network!r} was measured without all its layers, as it failed: {reason}"
                )
                self._report(BackendEvent(backend, REPLACED, message))

    def _left(self) -> list[str]:
        """Return the ids of the backends that are not disabled, in order of preference.

        Only if the caller named none, the available backends are looked for, which imports engines.
        """
        ids = self._backends
        if ids is None:
            planned_ids = () if self.used_plan is None else self.used_plan.backends
            ids = tuple(dict.fromkeys([*planned_ids, *self.runtime.device_spec.default_backends]))
        return [backend for backend in ids if backend not in self._quarantined]

    def quarantine(self, error: InterposerError) -> str:
        """Disable the backend that caused the error; return its id, or an empty string if it must stay enabled.

        A backend that refused a value of the inputs has not failed.
        """
        failed_backend = culprit(error)
        is_late = isinstance(error, DeadlineExceededError)
        if self.fallback is False or (is_late and self.fallback is None) or isinstance(error, InvalidValueError):
            return ""
        ids_left = self._left() if failed_backend else []
        if failed_backend not in ids_left or ids_left == [failed_backend]:
            return ""
        self._quarantined[failed_backend] = _first_line(error)
        self.disabled = frozenset(self._quarantined)
        return failed_backend

    def enable_again(self, ids: Collection[str], reason: str) -> None:
        """Enable the backends with these ids again; an event with the reason is recorded for each."""
        for backend in ids:
            if self._quarantined.pop(backend, None) is not None:
                self.disabled = frozenset(self._quarantined)
                self._report(BackendEvent(backend, ENABLED_AGAIN, reason))

    def with_reasons(self, error: InterposerError) -> InterposerError:
        """Return the error with a line for each backend that was disabled before, and the reason."""
        message = str(error)
        reasons = [f"{backend} was disabled before: {reason}" for backend, reason in self._quarantined.items()]
        new_reasons = [reason for reason in reasons if reason not in message]
        if new_reasons:
            error.args = ("\n  ".join([message, *new_reasons]),)
        return error

    def note(self, failed: str, error: InterposerError, name: str) -> None:
        """Record an event and log that the model `name` no longer uses the backend `failed`, because of `error`."""
        message = f"the model {name!r} runs without it from here on, as it failed: {_first_line(error)}"
        self._report(BackendEvent(failed, REPLACED, message))

    def _report(self, event: BackendEvent) -> None:
        self._record(event)
        _log.log(logging.WARNING if self._is_rare(event) else logging.DEBUG, "%s", event)

    def _is_rare(self, event: BackendEvent) -> bool:
        """Return True for the first few events of this kind and backend within a minute, so that no log is flooded.

        A backend that does not distinguish wrong values from failures would otherwise fill it with the values of
        clients.
        """
        times = self._times.setdefault((event.backend, event.kind), deque(maxlen=MOST_LINES))
        is_rare = len(times) < MOST_LINES or event.when - times[0] > 60
        if is_rare:
            times.append(event.when)
        return is_rare

    def _note_problems(self, optimized: OptimizedNetwork) -> None:
        """Record an event for each backend that raised an exception when it compiled its layers of the network.

        The optimizer has logged these exceptions already.
        """
        errors = [refusal for refusal in optimized.refusals if refusal.is_problem and refusal.stage == "optimize"]
        for failure in errors:
            if failure.backend not in self._faulty:
                self._faulty.add(failure.backend)
                count = sum(other_error.backend == failure.backend for other_error in errors)
                layers = (
                    f"layer {failure.layer!r}" if count == 1 else f"{count} layers, the first being {failure.layer!r},"
                )
                message = f"the model {optimized.name!r} runs {layers} without it, as it failed: {failure.reasons[0]}"
                self._record(BackendEvent(failure.backend, REPLACED, message, failure.layer))

    def _record(self, event: BackendEvent) -> None:
        self.events = (*self.events, event)[-EVENTS:]
        self.num_events += 1
        self.runtime.registry.record(event)


def _first_line(error: InterposerError) -> str:
    return str(error).splitlines()[0]
