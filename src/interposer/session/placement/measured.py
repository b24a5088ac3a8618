"""The search for the fastest placement: time parts, time the best plans as a whole, and cache the winner."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from interposer.backend.ids import listed_ids
from interposer.core.cache import read_cached, write_cached
from interposer.core.config import thread_budget
from interposer.core.errors import (
    DeadlineExceededError,
    InterposerError,
    InvalidArgumentError,
    LimitExceededError,
    OptionError,
    UnsupportedLayerError,
    culprit,
    expect,
)
from interposer.ir.network import Network
from interposer.ops.control import Constant
from interposer.optimizer import OptimizerOptions, optimize, simplified
from interposer.optimizer.offers import Offers
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import MemoryReport, Runtime
from interposer.session.placement.cuts import Block, blocks_of, part_network
from interposer.session.placement.loaded import Loaded
from interposer.session.placement.objective import Search
from interposer.session.placement.origin import made_with
from interposer.session.placement.plan import MIXES, Plan
from interposer.session.placement.search import Candidate, Part, best_plans, with_bounds
from interposer.session.timing import REST, Timing, spread_of, take_turns, undecided

__all__ = ["place", "planned"]

_log = logging.getLogger("interposer.session")
Exclusions = Mapping[str, Sequence[str]]
_PARTS_SHARE: Final = 0.5
"""The share of the budget left after whole backends were timed that is spent on parts; mixes get the rest."""
_TURNS_SHARE: Final = 0.1
"""The least share of the budget that is spent on turns of whole plans, also if nothing of the budget is left."""
_RUNS: Final = 5
_PATIENCE: Final = 20.0
"""The patience in seconds (or the budget, if larger): a slower first run is aborted, and its backend dropped."""
_SLOW: Final = 30
"""A first run is aborted after this many times the best time, but not before `_LEAST_PATIENCE` seconds."""
_LEAST_PATIENCE: Final = 5.0
_GAIN: Final = 0.02
"""The least relative gain in time for which a mix is preferred."""
_DUEL: Final = 7
_MORE: Final = 4
_MOST_TURNS: Final = 29
"""The number of additional turns for backends with close times, and the limit on turns."""
_ROUNDS: Final = 15
_TURN: Final = 0.1
"""The largest number of turns in which all plans are timed, and the seconds of a turn."""
_FEW: Final = 3
_SHORT_TURN: Final = 0.03
"""The number of turns, and their seconds, after which a plan that seems slow is dropped."""
_CLOSE: Final = 2.0
"""Plans that take this many times the best time in a few runs are not timed further."""
_FAR: Final = 5.0
"""Blocks are not tried on a backend that takes this many times the best time for the whole network."""
_LARGE: Final = 1 << 26
"""If a network has more than so many bytes of constants, at most two plans are loaded at once, one of them the best."""
_NEAR: Final = 1.5
"""Plans of large networks that take this many times the best time in a few runs are not loaded again."""


def place(
    network: Network,
    runtime: Runtime,
    backends: Iterable[str] | None = None,
    options: OptimizerOptions | None = None,
    search: Search | None = None,
) -> Plan:
    """Find by measuring which backend should run which part of a network.

    Every backend is timed on the whole network, the default backends before the others. Blocks between cut points are
    then compiled and timed on every backend, alone and merged, as long as the time for the search lasts and a mix of
    backends may win. The cost of a plan is the sum of its parts and of the copies between backends; the cheapest plans
    are found exactly, as shortest paths. These plans and each backend alone are then timed as a whole, in turns, and
    the best one is chosen. A plan with several backends must be faster than every backend alone by more than the noise.
    On the networks of the benchmarks, no such plan was.

    `Plan.unmeasured` says what was not timed, and why. The log warns of backends that were not timed for lack of time.
    The plan is stored in the cache folder, under a key of the network's content, its shapes, the backends with their
    versions, the threads and the machine. If it is there already, nothing is measured.

    Args:
        network: the network; it is not changed.
        runtime: the runtime that loads the network's parts for measuring.
        backends: backend ids, in the order in which they are timed; None means all that are available. The default
            backends then come first, and those that are otherwise only used by name follow. CpuRef is always the last.
        options: options of the optimizer; None means the default options.
        search: the time for the search, what to optimize, and the most memory and time that a run may need; None means
            `Search()`.

    Raises:
        LimitExceededError: every plan needs more memory or time than `search` allows.
        OptionError: `options` has an option that its backend does not have.
        InterposerError: any error that `optimize` raises if no backend can run the network.
    """
    expect(network, Network, "a placement is of a Network")
    expect(runtime, Runtime, "the runtime must be a Runtime")
    expect(options, OptimizerOptions | None, "the options must be OptimizerOptions(...)")
    expect(search, Search | None, "the search must be Search(...)")
    search, options, start_time = search or Search(), options or OptimizerOptions(), time.monotonic()
    ids = _ids(runtime, backends)
    simplified_network = simplified(network, ids, runtime.device_spec, options)
    environment = made_with(runtime, ids)
    name = f"plan-{_key(simplified_network, ids, {**environment, **_settings(runtime, ids)}, options, search)}.json"
    cached_plan = _cached(name)
    if cached_plan is not None:
        return cached_plan
    placer = _Placer(network, simplified_network, runtime, ids, options, search, environment, start_time)
    plan = placer.plan()
    _log_search(plan, placer.too_late)
    write_cached(name, plan.to_json().encode())
    return plan


def _log_search(plan: Plan, too_late: Collection[str]) -> None:
    """Log the choice, and what was not measured: as a warning if these are backends for which no time was left."""
    _log.info("the plan for %r: %s was chosen, with %.4g ms", plan.network, plan.chosen, plan.measured[plan.chosen])
    for name, reason in plan.unmeasured.items():
        level = logging.WARNING if name in too_late and name in plan.backends else logging.INFO
        _log.log(level, "the plan for %r was chosen without measuring %s: %s", plan.network, name, reason)


def planned(
    network: Network,
    plan: Plan,
    runtime: Runtime,
    options: OptimizerOptions | None = None,
    without: Collection[str] = (),
    logs: bool = True,
) -> OptimizedNetwork:
    """Return a network divided among backends according to a plan; missing backends are left out.

    Args:
        network: the network to divide.
        plan: the backend of each layer.
        runtime: the runtime whose backends are used.
        options: options of the optimizer; None means the default options.
        without: ids of backends that have failed and run nothing. The other backends of the plan take over, or the
            default backends if none is left.
        logs: whether to log differences between this environment and the one in which the plan was measured. False for
            the same network with other shapes or outputs.
    """
    options, available_ids = options or OptimizerOptions(), runtime.registry.available()
    plan_backends = dict.fromkeys((*plan.backends, *plan.layers.values()))
    ids = [backend_id for backend_id in plan_backends if backend_id in available_ids and backend_id not in without]
    chosen_ids = ids or [
        default_backend for default_backend in runtime.device_spec.default_backends if default_backend not in without
    ]
    simplified_network = simplified(network, chosen_ids, runtime.device_spec, options)
    if logs and not without:
        for difference in plan.differences(simplified_network.graph, made_with(runtime, plan.backends), available_ids):
            _log.warning("the plan for %r: %s", plan.network, difference)
    hints = {layer: backend for layer, backend in plan.hints(simplified_network.graph).items() if backend in chosen_ids}
    exclude = _both(options.exclude, plan.exclude, runtime)
    return optimize(
        simplified_network,
        chosen_ids,
        runtime.device_spec,
        replace(options, rewrite=False, hints=hints, exclude=exclude),
    )


def _both(from_options: Exclusions, from_plan: Exclusions, runtime: Runtime) -> dict[str, list[str]]:
    """Return by operator which backends must not run it, in the options (`from_options`) or in a plan (`from_plan`).

    Backends in the plan that are not registered here are left out.
    """
    registered_ids = {
        kind: [backend for backend in ids if backend in runtime.registry] for kind, ids in from_plan.items()
    }
    return {
        kind: [*from_options.get(kind, ()), *registered_ids.get(kind, ())]
        for kind in from_options.keys() | registered_ids.keys()
    }


def _ids(runtime: Runtime, backends: Iterable[str] | None) -> list[str]:
    """Return the backends in the order in which they are timed: CpuRef last, and by default those by name before it."""
    default_ids = runtime.device_spec.default_backends
    ids = (*default_ids, *runtime.registry.available()) if backends is None else listed_ids(backends)
    return sorted(dict.fromkeys(ids), key="CpuRef".__eq__)


def _settings(runtime: Runtime, ids: Sequence[str]) -> dict[str, Any]:
    """Return the runtime options and isolation settings of backends, by id; backends without any are left out."""
    backend_options, isolation = runtime.options.backend_options, runtime.registry.isolation
    settings = {backend: (sorted(backend_options.get(backend, {}).items()), isolation(backend)) for backend in ids}
    return {backend: setting for backend, setting in settings.items() if setting != ([], None)}


def _key(network: Network, ids: Sequence[str], environment: Mapping[str, Any], options: object, search: Search) -> str:
    """Return a hexadecimal digest of everything that a plan depends on, as the name of its cache file.

    This is the network with its constants, the backend ids, the options, the objective and limits in `search`, and in
    `environment` the versions, settings and machine.
    """
    digest = hashlib.sha256(repr((ids, dict(environment), options, search)).encode())
    for layer in network.graph.topological():
        constant = layer.op.value if isinstance(layer.op, Constant) else None
        op_text = layer.kind if constant is not None else repr(layer.op)
        infos = [(value.name, str(value.known)) for value in (*layer.values, *layer.outputs)]
        digest.update(repr((layer.name, op_text, infos)).encode())
        if constant is not None and constant.dtype != object:
            digest.update(np.ascontiguousarray(constant).view(np.uint8).reshape(-1).data if constant.size else b"")
    return digest.hexdigest()[:32]


def _cached(name: str) -> Plan | None:
    content = read_cached(name)
    try:
        return None if content is None else Plan.from_json(content.decode())
    except (InvalidArgumentError, UnicodeDecodeError):
        return None  # damaged: the plan is measured again


class _Placer:
    def __init__(
        self, source: Network, network: Network, runtime: Runtime, ids: Sequence[str], options: OptimizerOptions,
        search: Search, environment: Mapping[str, Any], began: float,
    ) -> None:  # fmt: skip
        self.source, self.source_options = source, options
        self.network, self.runtime, self.ids, self.search, self.environment = (
            network,
            runtime,
            list(ids),
            search,
            environment,
        )
        self.options = replace(options, rewrite=False)
        self.end = began + search.budget_seconds
        self.excluded = {kind: tuple(ids) for kind, ids in options.exclude.items()}
        self.pinned = {layer.name: layer.hint for layer in network.graph if layer.hint is not None}
        self.patience = max(_PATIENCE, search.budget_seconds)
        self.failed: dict[str, str] = {}
        self.timed_out: set[str] = set()
        self.slow: set[str] = set()
        self.self_sufficient: set[str] = set()
        self.first_seconds: dict[str, float] = {}
        self.trial_seconds: dict[str, float] = {}
        self.memory: dict[str, MemoryReport] = {}
        self.loaded: dict[str, Loaded] = {}
        self.errors: list[InterposerError] = []
        self.unmeasured: dict[str, str] = {}
        self.too_late: set[str] = set()
        self.timed_parts = self.late_parts = 0
        self.cost: dict[str, float] = {}

    def plan(self) -> Plan:
        """Return the best plan within the limits."""
        try:
            plans = self._singles()
            self._try_all(plans)
            self._simplify_for_the_fastest()
            plans |= self._tried_mixes()
            if not self.first_seconds:
                raise self.errors[0] if self.errors else InvalidArgumentError(self._nothing_runs())
            chosen_plan = self._chosen(plans)
            return replace(chosen_plan, failed=self.failed, cost=self.cost, unmeasured=self.unmeasured)
        finally:
            for loaded in self.loaded.values():
                loaded.close()

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _simplify_for_the_fastest(self) -> None:
        """Put the backends in the order of their times, and simplify the network for the first one.

        Parts are then those of the graph that the fastest backend runs alone.
        """
        order = sorted(self.ids, key=lambda backend: (backend == "CpuRef", self.first_seconds.get(backend, math.inf)))
        if order != self.ids:
            self.ids = order
            self.network = simplified(self.source, order, self.runtime.device_spec, self.source_options)

    # --- candidates ---------------------------------------------------------------------------------------------------

    def _singles(self) -> dict[str, Plan]:
        """Return a plan for each backend in which it is the most preferred one, by its id.

        Layers that it does not support run on the other backends.
        """
        orders = {
            backend: (backend, *(other_backend for other_backend in self.ids if other_backend != backend))
            for backend in self.ids
        }
        return {backend: self._as_plan(order, {}) for backend, order in orders.items()}

    def _as_plan(self, order: tuple[str, ...], layers: Mapping[str, str]) -> Plan:
        return Plan(self.network.name, order, {**layers, **self.pinned}, self.excluded, made_with=self.environment)

    def _tried_mixes(self) -> dict[str, Plan]:
        """Return the most promising plans with several backends, by name; they are loaded if they can still win."""
        if len(self.ids) < 2 or not self.first_seconds:
            return {}
        blocks = blocks_of(self.network.graph, self.search.blocks)
        reason = self._against_mixes(blocks)
        mixes = {} if reason else self._mixes(blocks)
        if not mixes:
            self.unmeasured[MIXES] = reason or self._against_measured_mixes()
        self._try_all(mixes)
        return mixes

    def _against_mixes(self, blocks: Sequence[Block]) -> str:
        """Return why no mix of backends can win, or an empty text if one may."""
        if self.search.mixes == 0:
            return "the search tries none"
        if len(blocks) < 2:
            return "the network is not cut into blocks"
        if len(self._near()) < 2:
            best = min(self.first_seconds, key=lambda name: self.first_seconds[name])
            return f"when they were first timed, every other backend took more than {_FAR:g} times as long as {best}"
        return ""

    def _against_measured_mixes(self) -> str:
        """Return why no plan with several backends is timed as a whole, although parts of the network were timed."""
        reason = f"by the times of {self.timed_parts} parts, none takes {_GAIN:.0%} less than the best backend alone"
        if not self.late_parts:
            return reason
        late_text = f"{self.late_parts} parts were not timed, as {self._budget_text} is too short"
        return f"{reason}; {late_text}" if self.timed_parts else late_text

    @property
    def _budget_text(self) -> str:
        return f"the budget of {self.search.budget_seconds:.3g} s"

    def _mixes(self, blocks: Sequence[Block]) -> dict[str, Plan]:
        copy_seconds = self._borders(blocks)
        parts = self._parts(blocks, copy_seconds)
        candidates = best_plans(len(blocks), parts, copy_seconds, self.search.mixes + len(self.ids))
        if candidates:
            lower_bound = best_plans(len(blocks), with_bounds(len(blocks), parts), copy_seconds, 1)[0].seconds
            self.cost = {"milliseconds": candidates[0].seconds * 1e3, "bound": lower_bound * 1e3}
            self.cost["gap"] = 1 - lower_bound / candidates[0].seconds if candidates[0].seconds else 0.0
        promising_candidates = self._promising(candidates, parts, len(blocks))[: self.search.mixes]
        return {
            f"mix {number}": self._mixed(candidate, blocks) for number, candidate in enumerate(promising_candidates, 1)
        }

    def _promising(self, candidates: Sequence[Candidate], parts: Mapping[Part, float], count: int) -> list[Candidate]:
        """Return the mixes among the candidates that may be faster than every backend alone, by their cost.

        `parts` has the seconds of the parts that were timed, and `count` is the number of blocks.
        """
        least_alone = min((parts.get((0, count, backend), math.inf) for backend in self.ids), default=math.inf)
        most_seconds = least_alone * (1 - _GAIN) if self.search.objective == "latency" else math.inf
        mixed_candidates = [candidate for candidate in candidates if len(set(candidate.backends())) > 1]
        return [candidate for candidate in mixed_candidates if candidate.seconds <= most_seconds]

    def _mixed(self, candidate: Candidate, blocks: Sequence[Block]) -> Plan:
        backends_and_blocks = zip(candidate.backends(), blocks, strict=True)
        layers = {layer.name: backend for backend, block in backends_and_blocks for layer in block.layers}
        return self._as_plan(tuple(self.ids), layers)

    def _parts(self, blocks: Sequence[Block], copy_seconds: Callable[[int, str, str], float]) -> dict[Part, float]:
        """Compile and time parts of the network on each backend, short parts first, as long as the search's time lasts.

        Longer parts are not timed if no mix can win, whatever their times are. `copy_seconds` is that of `best_plans`.

        Returns the seconds of one run by part: the numbers of its first block and of the block after its last one, and
        the backend.
        """
        reserve = (1 - _PARTS_SHARE) * self._left()
        count = sum(len(block.layers) for block in blocks)
        part_seconds: dict[Part, float] = {}
        refused_blocks: set[tuple[str, int]] = set()
        backends = self._near()
        for number, (first, last) in enumerate(_spans(len(blocks))):
            if number == len(blocks) + 1 and not self._may_win(len(blocks), part_seconds, copy_seconds):
                break
            for backend in backends:
                layers = [layer for block in blocks[first:last] for layer in block.layers]
                expected = self.trial_seconds.get(backend, 0.0) * len(layers) / count
                if (
                    any((backend, block) in refused_blocks for block in range(first, last))
                    or backend in self.timed_out | self.slow
                ):
                    continue
                if self._left() - expected < reserve:
                    self.late_parts += 1
                    continue
                seconds = self._part_seconds(backend, layers)
                if seconds is not None:
                    part_seconds[first, last, backend] = seconds
                    self.timed_parts += 1
                elif last - first == 1:
                    refused_blocks.add((backend, first))
        return part_seconds

    def _may_win(self, count: int, parts: Mapping[Part, float], copy_seconds: Callable[[int, str, str], float]) -> bool:
        """Return False if no mix can win, whatever the parts take that were not timed; the arguments as above."""
        if self.late_parts:
            return True
        candidates = best_plans(count, with_bounds(count, parts), copy_seconds, len(self.ids) + 1)
        return bool(self._promising(candidates, parts, count))

    def _near(self) -> list[str]:
        """Return the backends on which it is worth timing parts, the fastest first and CpuRef last.

        Backends that took far longer than the fastest one for the whole network are left out.
        """
        least_seconds = min(self.first_seconds.values(), default=math.inf)
        near_backends = [
            backend
            for backend in self.ids
            if self.first_seconds.get(backend, 0.0) <= _FAR * least_seconds or backend not in self.self_sufficient
        ]
        return sorted(
            near_backends, key=lambda backend: (backend == "CpuRef", self.first_seconds.get(backend, math.inf))
        )

    def _patience(self) -> float:
        """Return the deadline in seconds for the first run of a network or part that is measured.

        A run that takes longer hangs, is far slower than the best one, or exceeds the time of the search.
        """
        if not self.first_seconds:
            return self.patience
        too_slow = max(_LEAST_PATIENCE, _SLOW * min(self.first_seconds.values()))
        return min(self.patience, too_slow, max(_LEAST_PATIENCE, self._left()))

    def _part_seconds(self, backend: str, layers: Sequence[Any]) -> float | None:
        """Compile some layers as a separate network on one backend, and return the seconds of one run.

        None if the backend cannot run them, or if the options assign one of them to another backend.
        """
        for layer in layers:
            if self.pinned.get(layer.name, backend) != backend:
                return None
        patience = self._patience()
        try:
            network = part_network(self.network.graph, layers, "part")
            optimized = optimize(network, [backend], self.runtime.device_spec, replace(self.options, hints={}))
            with Loaded(self.runtime, optimized) as loaded:
                return loaded.seconds(patience, self._rest())
        except InterposerError as error:
            self._note(backend, error, patience)
            _log.debug("a part of %d layers does not run on %s: %s", len(layers), backend, error)
            return None

    def _note(self, backend: str, error: InterposerError, timeout: float) -> None:
        """Record that a backend failed in a measurement.

        If it only missed a deadline shorter than that of the whole search, it counts as slow, else as broken.
        `timeout` is the deadline in seconds.
        """
        if isinstance(error, DeadlineExceededError) and timeout < self.patience:
            self.slow.add(backend)
        else:
            self._blame(culprit(error) or backend, error)

    def _reason(self, error: InterposerError, timeout: float) -> str:
        """Return why a plan could not be timed, in one line; `timeout` is the deadline in seconds of its first run."""
        if isinstance(error, DeadlineExceededError):
            return f"its first run took more than {timeout:.3g} s"
        return str(error).partition("\n")[0]

    def _blame(self, backend: str, error: InterposerError) -> None:
        """Record the error of a backend for the plan, unless it only did not support a layer.

        A backend that missed its deadline is not timed again.
        """
        if isinstance(error, DeadlineExceededError):
            self.timed_out.add(backend)
        if not isinstance(error, UnsupportedLayerError):
            self.failed.setdefault(backend, str(error).partition("\n")[0])

    def _borders(self, blocks: Sequence[Block]) -> Callable[[int, str, str], float]:
        """Return a function that estimates the seconds for moving tensors from one backend to another.

        It is called with the number of the block before which they are moved, the source and the target backend. The
        result is 0 if both backends can use the same memory.
        """
        chosen_backends = [self.runtime.registry.get(backend) for backend in self.ids]
        offers = Offers.of(chosen_backends, set(self.ids), self.options.model_options)
        seconds_per_byte = _copy_seconds(1 << 20) / (1 << 20)

        def copy_seconds(block_index: int, source: str, target: str) -> float:
            shared_factories = set(offers.preferences[source]) & set(offers.preferences[target])
            return 0.0 if source == target or shared_factories else blocks[block_index - 1].leaving * seconds_per_byte

        return copy_seconds

    # --- the choice ---------------------------------------------------------------------------------------------------

    def _try_all(self, plans: Mapping[str, Plan]) -> None:
        """Load the networks for these plans, by name, and estimate the time of a run of each.

        The networks stay loaded for the comparison. Plans that fail, or are far too slow, are left out. Options that a
        backend does not have are errors of the caller, and raised.
        """
        for name, plan in plans.items():
            used_backends = {*plan.layers.values()} or {plan.backends[0]}
            expected = max((self.trial_seconds.get(backend, 0.0) for backend in used_backends), default=0.0)
            if self.timed_out & used_backends:
                self.unmeasured[name] = f"{', '.join(sorted(self.timed_out & used_backends))} missed a deadline before"
                continue
            if self.first_seconds and self._left() <= expected:
                self.unmeasured[name] = self._budget_text + (" was spent" if self._left() <= 0 else " is too short")
                self.too_late.add(name)
                continue
            patience, start_time = self._patience(), time.monotonic()
            try:
                loaded_plan = self._tried(plan, patience)
            except OptionError:
                raise
            except InterposerError as error:
                _log.debug("the plan %s does not run: %s", name, error)
                self.errors.append(error)
                self._note(plan.backends[0], error, patience)
                self.unmeasured[name] = self._reason(error, patience)
                continue
            self.loaded[name], self.first_seconds[name], self.memory[name] = (
                loaded_plan,
                loaded_plan.first_seconds,
                loaded_plan.memory,
            )
            self.trial_seconds[name] = time.monotonic() - start_time
            if loaded_plan.used == {name}:
                self.self_sufficient.add(name)
            self._let_go()

    def _let_go(self) -> None:
        """Unload the networks of plans that can no longer be chosen, to save memory.

        These are slow, or need more memory than is allowed. Of a large network, only the best plan stays loaded.
        """
        fitting_names = [name for name in self.loaded if self._fits(name)]
        singles = [name for name in fitting_names if name in self.ids]
        best = min(singles or fitting_names, key=lambda name: self.first_seconds[name], default="")
        kept_names = sorted(fitting_names, key=lambda name: (name != best, self.first_seconds[name]))
        if self.search.objective == "latency":
            kept_names = [name for name in kept_names if name == best or self._is_close(name, best)]
        if self._is_large:
            kept_names = kept_names[:1]
        for name in self.loaded.keys() - set(kept_names):
            self.loaded.pop(name).close()

    def _is_close(self, name: str, best: str) -> bool:
        """Return True if a loaded plan may be the fastest one, although `best` took less time in a short measurement.

        If the plan seems slow, both take a few turns, since other programs may have disturbed one of the measurements.
        """
        ratio = self.first_seconds[name] / (self.first_seconds[best] or 1.0)
        if not _CLOSE < ratio <= _FAR or self._left() < 2 * _FEW * (
            self.first_seconds[name] + self.first_seconds[best]
        ):
            return ratio <= _CLOSE
        calls = {plan_name: self.loaded[plan_name].run for plan_name in (name, best)}
        timings = take_turns(calls, _FEW, _SHORT_TURN, failed=self._failed, rest=self._rest())
        if len(timings) < len(calls):
            return name in timings
        self.first_seconds |= {plan_name: timing.median / 1e3 for plan_name, timing in timings.items()}
        turns_of_both = zip(timings[name].turns, timings[best].turns, strict=True)
        return any(ours <= _CLOSE * theirs for ours, theirs in turns_of_both)

    @property
    def _is_large(self) -> bool:
        return any(report.constants > _LARGE for report in self.memory.values())

    def _load_again(self, plans: Mapping[str, Plan]) -> None:
        """Compare the best plan of a large network with the others of about its time, one after the other.

        Only two of these networks are loaded at the same time. Single backends come before mixes, since a mix must be
        clearly faster than the best of them. `plans` has all plans by name.
        """
        least_seconds = min((self.first_seconds[name] for name in self.first_seconds if self._fits(name)), default=0.0)
        near_names = [
            name
            for name, seconds in self.first_seconds.items()
            if self._fits(name) and seconds <= _NEAR * least_seconds
        ]
        for name in sorted(
            near_names, key=lambda plan_name: (plan_name not in self.ids, self.first_seconds[plan_name])
        ):
            [best_name] = self.loaded or [name]
            if name == best_name or self._left() <= self.trial_seconds[name] + 4 * _RUNS * (
                self.first_seconds[name] + self.first_seconds[best_name]
            ):
                continue
            try:
                self.loaded[name] = self._tried(plans[name], self._patience())
            except InterposerError as error:
                self._note(plans[name].backends[0], error, self.patience)
                continue
            self.loaded.pop(best_name if self._wins(name, best_name) else name).close()

    def _wins(self, name: str, best: str) -> bool:
        """Return True if the plan `name` is faster than `best`, the best plan so far; both are loaded."""
        if name not in self.ids:
            return self._is_faster(name, best)
        calls = {plan_name: self._call(self.loaded[plan_name]) for plan_name in (name, best)}
        turn = min(_TURN, max(0.0, self._left()) / (4 * _RUNS))
        timings = take_turns(calls, _RUNS, turn, failed=self._failed, rest=self._rest())
        return name in timings and (best not in timings or timings[name].median < timings[best].median)

    def _fits(self, name: str) -> bool:
        """Return True if the memory of the plan with this name is within the limit, or if there is no limit.

        If memory has a limit or is the objective, plans whose memory is not known do not fit.
        """
        most_bytes, report = self.search.most_bytes, self.memory[name]
        if most_bytes is None and self.search.objective != "memory":
            return True
        return not report.unknown and (most_bytes is None or report.peak <= most_bytes)

    def _nothing_runs(self) -> str:
        reasons = "; ".join(f"{backend}: {reason}" for backend, reason in self.failed.items())
        return f"no plan for {self.network.name!r} could be run to its end ({reasons})"

    def _tried(self, plan: Plan, patience: float) -> Loaded:
        """Load the network divided according to the plan, estimate the time of a run, and return the loaded network.

        `patience` is the deadline of the first run in seconds. The network is simplified for the backends of the plan,
        as it is when the plan is followed.
        """
        optimized = planned(self.source, plan, self.runtime, self.source_options, without=self.timed_out, logs=False)
        for refusal in optimized.refusals:
            if refusal.is_problem:
                self.failed.setdefault(refusal.backend, refusal.reasons[0])
        loaded_plan = Loaded(self.runtime, optimized)
        try:
            loaded_plan.first_seconds = loaded_plan.seconds(patience, self._rest())
        except BaseException:
            loaded_plan.close()
            raise
        return loaded_plan

    def _chosen(self, plans: Mapping[str, Plan]) -> Plan:
        if self._is_large and self.search.objective != "memory":
            self._load_again(plans)
        timings = self._settled(self._timings()) if self.search.objective != "memory" else {}
        if not timings and self.loaded and self.search.objective != "memory":
            raise InvalidArgumentError(self._nothing_runs())
        seconds = {name: timing.median / 1e3 for name, timing in timings.items()}
        if self.search.objective == "memory":
            seconds = {name: plan_seconds for name, plan_seconds in self.first_seconds.items() if self._fits(name)}
        most_seconds = math.inf if self.search.most_seconds is None else self.search.most_seconds
        allowed_names = [name for name, plan_seconds in seconds.items() if plan_seconds <= most_seconds]
        if not allowed_names:
            raise self._beyond(seconds)
        name = self._best(allowed_names, seconds, timings)
        spread = {plan: spread_of(timing.turns) for plan, timing in timings.items() if len(timing.turns) > 1}
        measured_times, units = self._measured(seconds), self._units(name, seconds[name])
        return replace(plans[name], measured=measured_times, spread=spread, chosen=name, units=units)

    def _units(self, name: str, seconds: float) -> dict[str, float]:
        """Return the milliseconds of each layer, compiled part and copy of the chosen plan, by name.

        `seconds` is the time of a whole run. Empty if there is no time left, or if the objective is not latency.
        """
        loaded_plan, seconds_left = self.loaded.get(name), self._left()
        if (
            loaded_plan is None
            or self.search.objective != "latency"
            or seconds_left <= 2 * (_RUNS + 1) * self.first_seconds[name]
        ):
            return {}
        if loaded_plan.only_unit is not None:
            return {loaded_plan.only_unit: seconds * 1e3}
        from interposer.session.stopwatch import measured_times  # noqa: PLC0415 - it takes examples from this package

        try:
            return dict(measured_times(loaded_plan.watched, min(_TURN, seconds_left)).units)
        except InterposerError as error:
            _log.debug("the parts of the plan %s could not be timed: %s", name, error)
            return {}

    def _measured(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the milliseconds of one run of each plan, by name."""
        if self.search.objective == "throughput":
            return {name: plan_seconds * 1e3 / self._together() for name, plan_seconds in seconds.items()}
        return {name: plan_seconds * 1e3 for name, plan_seconds in {**self.first_seconds, **seconds}.items()}

    def _together(self) -> int:
        """Return how many runs are measured at the same time: one per thread if the objective is throughput, else 1."""
        return thread_budget(self.runtime.options.num_threads) if self.search.objective == "throughput" else 1

    def _timings(self) -> dict[str, Timing]:
        """Time the loaded plans in turns, and return the times by name of the plan.

        There are as many rounds as the time of the search allows.
        """
        calls = {name: self._call(loaded) for name, loaded in self.loaded.items()}
        if not calls:
            return {}
        has_mixes = any(name not in self.ids for name in calls)
        seconds_left = max(self._left() * (0.35 if has_mixes else 0.9), _TURNS_SHARE * self.search.budget_seconds)
        most_rounds = _ROUNDS if len(calls) > 1 else _FEW  # a single plan has won already
        turn_seconds = min(_TURN, seconds_left / (most_rounds * len(calls)))
        round_seconds = sum(
            max(1.2 * turn_seconds, 2 * self._together() * self.first_seconds[name]) + self._rest() for name in calls
        )
        rounds = min(most_rounds, int(seconds_left / round_seconds)) if round_seconds else most_rounds
        if rounds < 1 and self.search.objective == "latency":
            return {name: Timing((self.first_seconds[name] * 1e3,), self.first_seconds[name] * 1e3) for name in calls}
        return take_turns(calls, max(1, rounds), turn_seconds, failed=self._failed, rest=self._rest())

    def _settled(self, timings: dict[str, Timing]) -> dict[str, Timing]:
        """Return the timings with more turns for the fastest backends, while they are undecided and time is left."""
        reserve = 0.5 * max(0.0, self._left()) if any(name not in self.ids for name in timings) else 0.0
        while True:
            finalists = _with_most_turns({name: timing for name, timing in timings.items() if name in self.ids})
            names = undecided(finalists)
            if len(names) < 2 or len(finalists[names[0]].turns) >= _MOST_TURNS:
                return timings
            calls = {name: self._call(self.loaded[name]) for name in names}
            round_seconds = sum(
                max(1.2 * _TURN, 2 * self._together() * self.first_seconds[name]) + self._rest() for name in names
            )
            if _MORE * round_seconds > self._left() - reserve:
                return timings
            more_timings = take_turns(calls, _MORE, _TURN, failed=self._failed, rest=self._rest())
            failed_names = calls.keys() - more_timings.keys()
            timings = {name: timing for name, timing in timings.items() if name not in failed_names}
            timings |= {name: timings[name].followed_by(timing) for name, timing in more_timings.items()}

    def _rest(self) -> float:
        """Return the pause before each measurement in seconds.

        The idle threads of other backends stop spinning in this time; with one thread, there is no pause.
        """
        return REST if thread_budget(self.runtime.options.num_threads) > 1 else 0.0

    def _beyond(self, seconds: Mapping[str, float]) -> InterposerError:
        """Return the error to raise if every plan exceeds the limits; it names the least memory or time that was found.

        `seconds` has the time of each plan that is within the limit of memory.
        """
        peak_of_plan = {name: report.peak for name, report in self.memory.items() if not report.unknown}
        unknown_backends = sorted({backend for report in self.memory.values() for backend in report.unknown})
        gaps = f"; the memory of parts on {', '.join(unknown_backends)} is not known" if unknown_backends else ""
        beginning, most_bytes = f"no plan for {self.network.name!r} is within", self.search.most_bytes
        if not seconds and most_bytes is not None and peak_of_plan:
            least_plan = min(peak_of_plan, key=lambda name: peak_of_plan[name])
            least_text = f"{peak_of_plan[least_plan]:,} bytes ({least_plan}){gaps}"
            message = f"{beginning} most_bytes={most_bytes:,}: the least that was found is {least_text}"
            quantity, needed, limit, unit = (
                "memory of a plan",
                float(peak_of_plan[least_plan]),
                float(most_bytes),
                "bytes",
            )
        elif not seconds:
            return InvalidArgumentError(f"no plan for {self.network.name!r} can be chosen by memory{gaps}")
        else:
            least_plan, limit = min(seconds, key=lambda name: seconds[name]), float(self.search.most_seconds or 0)
            least_text = f"{seconds[least_plan]:.3g} seconds ({least_plan})"
            message = f"{beginning} most_seconds={limit:g}: the least that was found is {least_text}"
            quantity, needed, unit = "time of a plan", seconds[least_plan], "seconds"
        return LimitExceededError(quantity, needed, limit, unit, f"{message}; raise the limit, or give other backends")

    def _failed(self, name: str, error: Exception) -> None:
        _log.debug("the plan %s failed while it was timed: %s", name, error)
        if isinstance(error, InterposerError):
            self._blame(culprit(error) or name, error)

    def _call(self, loaded: Loaded) -> Callable[[], object]:
        return loaded.run_together if self.search.objective == "throughput" else loaded.run

    def _best(self, names: Sequence[str], seconds: Mapping[str, float], timings: Mapping[str, Timing]) -> str:
        if self.search.objective == "memory":
            return min(names, key=lambda name: (self.memory[name].peak, seconds[name]))
        finalists = _with_most_turns({name: timings[name] for name in names if name in self.ids})
        mix = min((name for name in names if name not in self.ids), key=lambda name: seconds[name], default="")
        best_single = min(finalists, key=lambda name: seconds[name], default=mix)
        noise = max(_GAIN, spread_of(timings[best_single].turns))
        if mix in ("", best_single) or seconds[mix] >= seconds[best_single] * (1 - noise):
            return best_single
        return mix if self._is_faster(mix, best_single) else best_single

    def _is_faster(self, mix: str, alone: str) -> bool:
        """Return True if the plan `mix`, with several backends, beats the plan `alone` in nearly all of a few turns.

        Only these two are compared. With many plans, one of them wins by chance; this second comparison guards against
        it.
        """
        calls = {"mix": self._call(self.loaded[mix]), "alone": self._call(self.loaded[alone])}
        seconds_left = self._left()
        if seconds_left < 2 * _DUEL * self._together() * (self.first_seconds[mix] + self.first_seconds[alone]):
            return False
        timings = take_turns(
            calls, _DUEL, min(_TURN, seconds_left / (3 * _DUEL)), failed=self._failed, rest=self._rest()
        )
        if len(timings) < len(calls):
            return False
        turns_of_both = zip(timings["mix"].turns, timings["alone"].turns, strict=True)
        wins = sum(ours < theirs * (1 - _GAIN) for ours, theirs in turns_of_both)
        return wins >= _DUEL - 1


def _with_most_turns(timings: Mapping[str, Timing]) -> dict[str, Timing]:
    """Return only the timings with the most turns.

    The other candidates were measured at other times, and are not comparable with them.
    """
    most_turns = max((len(timing.turns) for timing in timings.values()), default=0)
    return {name: timing for name, timing in timings.items() if len(timing.turns) == most_turns}


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive blocks (first, last plus one) in the order in which they are timed.

    These are the single blocks of `count` blocks, then the whole network, then ranges of increasing length.
    """
    yield from ((first, first + 1) for first in range(count))
    yield 0, count
    for length in range(2, count):
        yield from ((first, first + length) for first in range(count - length + 1))


def _copy_seconds(size: int) -> float:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return min(times)
