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
from interposer.session.placement.plan import Plan
from interposer.session.placement.search import Candidate, Part, best_plans, with_bounds
from interposer.session.timing import REST, Timing, take_turns, undecided

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

    Blocks between cut points are compiled and timed on every backend, alone and merged, as long as the time for the
    search lasts. The cost of a plan is the sum of its parts and of the copies between backends; the cheapest plans are
    found exactly, as shortest paths. These plans and each backend alone are then timed as a whole, in turns, and the
    best one is chosen. A plan with several backends must be faster than every backend alone by more than the noise. The
    plan is stored in the cache folder, under a key of the network's content, its shapes, the backends with their
    versions, the threads and the machine. If it is there already, nothing is measured.

    Args:
        network: the network; it is not changed.
        runtime: the runtime that loads the network's parts for measuring.
        backends: backend ids; None means all that are available, including those that are otherwise only used by name.
        options: options of the optimizer; None means the default options.
        search: the time for the search, what to optimize, and the most memory and time that a run may need; None means
            `Search()`.

    Raises:
        LimitExceededError: every plan needs more memory or time than `search` allows.
        InterposerError: any error that `optimize` raises if no backend can run the network.
    """
    expect(network, Network, "a placement is of a Network")
    expect(runtime, Runtime, "the runtime must be a Runtime")
    expect(options, OptimizerOptions | None, "the options must be OptimizerOptions(...)")
    expect(search, Search | None, "the search must be Search(...)")
    search, options, began = search or Search(), options or OptimizerOptions(), time.monotonic()
    ids = _ids(runtime, backends)
    simple = simplified(network, ids, runtime.device_spec, options)
    reported = made_with(runtime, ids)
    name = f"plan-{_key(simple, ids, {**reported, **_settings(runtime, ids)}, options, search)}.json"
    cached = _cached(name)
    if cached is not None:
        return cached
    plan = _Placer(network, simple, runtime, ids, options, search, reported, began).plan()
    write_cached(name, plan.to_json().encode())
    return plan


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
    options, available = options or OptimizerOptions(), runtime.registry.available()
    named = dict.fromkeys((*plan.backends, *plan.layers.values()))
    ids = [item for item in named if item in available and item not in without]
    chosen = ids or [
        default_backend for default_backend in runtime.device_spec.default_backends if default_backend not in without
    ]
    simple = simplified(network, chosen, runtime.device_spec, options)
    if logs and not without:
        for difference in plan.differences(simple.graph, made_with(runtime, plan.backends), available):
            _log.warning("the plan for %r: %s", plan.network, difference)
    hints = {layer: backend for layer, backend in plan.hints(simple.graph).items() if backend in chosen}
    exclude = _both(options.exclude, plan.exclude, runtime)
    return optimize(simple, chosen, runtime.device_spec, replace(options, rewrite=False, hints=hints, exclude=exclude))


def _both(asked: Exclusions, planned: Exclusions, runtime: Runtime) -> dict[str, list[str]]:
    """Return by operator which backends must not run it, in the options (`asked`) or in a plan (`planned`).

    Backends in the plan that are not registered here are left out.
    """
    known = {kind: [item for item in ids if item in runtime.registry] for kind, ids in planned.items()}
    return {kind: [*asked.get(kind, ()), *known.get(kind, ())] for kind in asked.keys() | known.keys()}


def _ids(runtime: Runtime, backends: Iterable[str] | None) -> list[str]:
    available = runtime.registry.available()
    value = available if backends is None else listed_ids(backends)
    return sorted(value, key=lambda item: item == "CpuRef")


def _settings(runtime: Runtime, ids: Sequence[str]) -> dict[str, Any]:
    """Return the runtime options and isolation settings of backends, by id; backends without any are left out."""
    value, isolated = runtime.options.backend_options, runtime.registry.isolation
    result = {item: (sorted(value.get(item, {}).items()), isolated(item)) for item in ids}
    return {item: how for item, how in result.items() if how != ([], None)}


def _key(network: Network, ids: Sequence[str], reported: Mapping[str, Any], options: object, search: Search) -> str:
    """Return a hexadecimal digest of everything that a plan depends on, as the name of its cache file.

    This is the network with its constants, the backend ids, the options, the objective and limits in `search`, and in
    `reported` the versions, settings and machine.
    """
    digest = hashlib.sha256(repr((ids, dict(reported), options, search)).encode())
    for layer in network.graph.topological():
        constant = layer.op.value if isinstance(layer.op, Constant) else None
        shown = layer.kind if constant is not None else repr(layer.op)
        infos = [(value.name, str(value.known)) for value in (*layer.values, *layer.outputs)]
        digest.update(repr((layer.name, shown, infos)).encode())
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
        search: Search, reported: Mapping[str, Any], began: float,
    ) -> None:  # fmt: skip
        self.source, self.source_options = source, options
        self.network, self.runtime, self.ids, self.search, self.told = network, runtime, list(ids), search, reported
        self.options = replace(options, rewrite=False)
        self.end = began + search.budget_seconds
        self.excluded = {kind: tuple(ids) for kind, ids in options.exclude.items()}
        self.pinned = {layer.name: layer.hint for layer in network.graph if layer.hint is not None}
        self.patience = max(_PATIENCE, search.budget_seconds)
        self.failed: dict[str, str] = {}
        self.late: set[str] = set()
        self.slow: set[str] = set()
        self.alone: set[str] = set()
        self.quick: dict[str, float] = {}
        self.spent: dict[str, float] = {}
        self.memory: dict[str, MemoryReport] = {}
        self.loaded: dict[str, Loaded] = {}
        self.errors: list[InterposerError] = []
        self.cost: dict[str, float] = {}

    def plan(self) -> Plan:
        """Return the best plan within the limits."""
        try:
            plans = self._singles()
            self._try_all(plans)
            self._simplify_for_the_fastest()
            blocks = blocks_of(self.network.graph, self.search.blocks)
            if len(self.ids) > 1 and len(blocks) > 1:
                mixes = self._mixes(blocks)
                self._try_all(mixes)
                plans |= mixes
            if not self.quick:
                raise self.errors[0] if self.errors else InvalidArgumentError(self._nothing_runs())
            return replace(self._chosen(plans), failed=self.failed, cost=self.cost)
        finally:
            for item in self.loaded.values():
                item.close()

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _simplify_for_the_fastest(self) -> None:
        """Put the backends in the order of their times, and simplify the network for the first one.

        Parts are then those of the graph that the fastest backend runs alone.
        """
        order = sorted(self.ids, key=lambda item: (item == "CpuRef", self.quick.get(item, math.inf)))
        if order != self.ids:
            self.ids = order
            self.network = simplified(self.source, order, self.runtime.device_spec, self.source_options)

    # --- candidates ---------------------------------------------------------------------------------------------------

    def _singles(self) -> dict[str, Plan]:
        """Return a plan for each backend in which it is the most preferred one, by its id.

        Layers that it does not support run on the other backends.
        """
        orders = {item: (item, *(other for other in self.ids if other != item)) for item in self.ids}
        return {item: self._as_plan(order, {}) for item, order in orders.items()}

    def _as_plan(self, order: tuple[str, ...], layers: Mapping[str, str]) -> Plan:
        return Plan(self.network.name, order, {**layers, **self.pinned}, self.excluded, made_with=self.told)

    def _mixes(self, blocks: Sequence[Block]) -> dict[str, Plan]:
        parts = self._parts(blocks)
        border = self._borders(blocks)
        result = best_plans(len(blocks), parts, border, self.search.mixes + len(self.ids))
        if result:
            least = best_plans(len(blocks), with_bounds(len(blocks), parts), border, 1)[0].seconds
            self.cost = {"milliseconds": result[0].seconds * 1e3, "bound": least * 1e3}
            self.cost["gap"] = 1 - least / result[0].seconds if result[0].seconds else 0.0
        alone = min((parts.get((0, len(blocks), item), math.inf) for item in self.ids), default=math.inf)
        most = alone * (1 - _GAIN) if self.search.objective == "latency" else math.inf
        mixed = [item for item in result if len(set(item.backends())) > 1 and item.seconds <= most]
        mixed = mixed[: self.search.mixes]
        return {f"mix {number}": self._mixed(item, blocks) for number, item in enumerate(mixed, 1)}

    def _mixed(self, way: Candidate, blocks: Sequence[Block]) -> Plan:
        pairs = zip(way.backends(), blocks, strict=True)
        layers = {layer.name: backend for backend, block in pairs for layer in block.layers}
        return self._as_plan(tuple(self.ids), layers)

    def _parts(self, blocks: Sequence[Block]) -> dict[Part, float]:
        """Compile and time parts of the network on each backend, short parts first, as long as the search's time lasts.

        Returns the seconds of one run by part: the numbers of its first block and of the block after its last one, and
        the backend.
        """
        reserve = (1 - _PARTS_SHARE) * self._left()
        count = sum(len(block.layers) for block in blocks)
        result: dict[Part, float] = {}
        refused: set[tuple[str, int]] = set()
        backends = self._near()
        for first, last in _spans(len(blocks)):
            for backend in backends:
                layers = [layer for block in blocks[first:last] for layer in block.layers]
                expected = self.spent.get(backend, 0.0) * len(layers) / count
                if any((backend, block) in refused for block in range(first, last)) or backend in self.late | self.slow:
                    continue
                if self._left() - expected < reserve:
                    continue
                seconds = self._part_seconds(backend, layers)
                if seconds is not None:
                    result[first, last, backend] = seconds
                elif last - first == 1:
                    refused.add((backend, first))
        return result

    def _near(self) -> list[str]:
        """Return the backends on which it is worth timing parts, the fastest first and CpuRef last.

        Backends that took far longer than the fastest one for the whole network are left out.
        """
        least = min(self.quick.values(), default=math.inf)
        near = [item for item in self.ids if self.quick.get(item, 0.0) <= _FAR * least or item not in self.alone]
        return sorted(near, key=lambda item: (item == "CpuRef", self.quick.get(item, math.inf)))

    def _patience(self) -> float:
        """Return the deadline in seconds for the first run of a network or part that is measured.

        A run that takes longer hangs, is far slower than the best one, or exceeds the time of the search.
        """
        if not self.quick:
            return self.patience
        slow = max(_LEAST_PATIENCE, _SLOW * min(self.quick.values()))
        return min(self.patience, slow, max(_LEAST_PATIENCE, self._left()))

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

    def _note(self, backend: str, error: InterposerError, patience: float) -> None:
        """Record that a backend failed in a measurement.

        If it only missed a deadline shorter than that of the whole search, it counts as slow, else as broken.
        `patience` is the deadline in seconds.
        """
        if isinstance(error, DeadlineExceededError) and patience < self.patience:
            self.slow.add(backend)
        else:
            self._blame(culprit(error) or backend, error)

    def _blame(self, backend: str, error: InterposerError) -> None:
        """Record the error of a backend for the plan, unless it only did not support a layer.

        A backend that missed its deadline is not timed again.
        """
        if isinstance(error, DeadlineExceededError):
            self.late.add(backend)
        if not isinstance(error, UnsupportedLayerError):
            self.failed.setdefault(backend, str(error).partition("\n")[0])

    def _borders(self, blocks: Sequence[Block]) -> Callable[[int, str, str], float]:
        """Return a function that estimates the seconds for moving tensors from one backend to another.

        It is called with the number of the block before which they are moved, the source and the target backend. The
        result is 0 if both backends can use the same memory.
        """
        chosen = [self.runtime.registry.get(item) for item in self.ids]
        offers = Offers.of(chosen, set(self.ids), self.options.model_options)
        second_per_byte = _copy_seconds(1 << 20) / (1 << 20)

        def border(place: int, source: str, target: str) -> float:
            shared = set(offers.preferences[source]) & set(offers.preferences[target])
            return 0.0 if source == target or shared else blocks[place - 1].leaving * second_per_byte

        return border

    # --- the choice ---------------------------------------------------------------------------------------------------

    def _try_all(self, plans: Mapping[str, Plan]) -> None:
        """Load the networks for these plans, by name, and estimate the time of a run of each.

        The networks stay loaded for the comparison. Plans that fail, or are far too slow, are left out.
        """
        for name, plan in plans.items():
            used = {*plan.layers.values()} or {plan.backends[0]}
            expected = max((self.spent.get(item, 0.0) for item in used), default=0.0)
            if self.late & used or (self.quick and self._left() <= expected):
                continue
            patience, began = self._patience(), time.monotonic()
            try:
                created = self._tried(plan, patience)
            except InterposerError as error:
                _log.debug("the plan %s does not run: %s", name, error)
                self.errors.append(error)
                self._note(plan.backends[0], error, patience)
                continue
            self.loaded[name], self.quick[name], self.memory[name] = created, created.quick, created.memory
            self.spent[name] = time.monotonic() - began
            if created.used == {name}:
                self.alone.add(name)
            self._let_go()

    def _let_go(self) -> None:
        """Unload the networks of plans that can no longer be chosen, to save memory.

        These are slow, or need more memory than is allowed. Of a large network, only the best plan stays loaded.
        """
        fitting = [name for name in self.loaded if self._fits(name)]
        alone = [name for name in fitting if name in self.ids]
        best = min(alone or fitting, key=lambda name: self.quick[name], default="")
        cached = sorted(fitting, key=lambda name: (name != best, self.quick[name]))
        if self.search.objective == "latency":
            cached = [name for name in cached if name == best or self._is_close(name, best)]
        if self._is_large:
            cached = cached[:1]
        for name in self.loaded.keys() - set(cached):
            self.loaded.pop(name).close()

    def _is_close(self, name: str, best: str) -> bool:
        """Return True if a loaded plan may be the fastest one, although `best` took less time in a short measurement.

        If the plan seems slow, both take a few turns, since other programs may have disturbed one of the measurements.
        """
        ratio = self.quick[name] / (self.quick[best] or 1.0)
        if not _CLOSE < ratio <= _FAR or self._left() < 2 * _FEW * (self.quick[name] + self.quick[best]):
            return ratio <= _CLOSE
        calls = {item: self.loaded[item].run for item in (name, best)}
        turns = take_turns(calls, _FEW, _SHORT_TURN, failed=self._failed, rest=self._rest())
        if len(turns) < len(calls):
            return name in turns
        self.quick |= {item: timing.median / 1e3 for item, timing in turns.items()}
        pairs = zip(turns[name].turns, turns[best].turns, strict=True)
        return any(ours <= _CLOSE * theirs for ours, theirs in pairs)

    @property
    def _is_large(self) -> bool:
        return any(report.constants > _LARGE for report in self.memory.values())

    def _load_again(self, plans: Mapping[str, Plan]) -> None:
        """Compare the best plan of a large network with the others of about its time, one after the other.

        Only two of these networks are loaded at the same time. Single backends come before mixes, since a mix must be
        clearly faster than the best of them. `plans` has all plans by name.
        """
        least = min((self.quick[name] for name in self.quick if self._fits(name)), default=0.0)
        near = [name for name, quick in self.quick.items() if self._fits(name) and quick <= _NEAR * least]
        for name in sorted(near, key=lambda item: (item not in self.ids, self.quick[item])):
            [best] = self.loaded or [name]
            if name == best or self._left() <= self.spent[name] + 4 * _RUNS * (self.quick[name] + self.quick[best]):
                continue
            try:
                self.loaded[name] = self._tried(plans[name], self._patience())
            except InterposerError as error:
                self._note(plans[name].backends[0], error, self.patience)
                continue
            self.loaded.pop(best if self._wins(name, best) else name).close()

    def _wins(self, name: str, best: str) -> bool:
        """Return True if the plan `name` is faster than `best`, the best plan so far; both are loaded."""
        if name not in self.ids:
            return self._is_faster(name, best)
        calls = {item: self._call(self.loaded[item]) for item in (name, best)}
        turn = min(_TURN, max(0.0, self._left()) / (4 * _RUNS))
        timings = take_turns(calls, _RUNS, turn, failed=self._failed, rest=self._rest())
        return name in timings and (best not in timings or timings[name].median < timings[best].median)

    def _fits(self, name: str) -> bool:
        """Return True if the memory of the plan with this name is within the limit, or if there is no limit.

        If memory has a limit or is the objective, plans whose memory is not known do not fit.
        """
        most, report = self.search.most_bytes, self.memory[name]
        if most is None and self.search.objective != "memory":
            return True
        return not report.unknown and (most is None or report.peak <= most)

    def _nothing_runs(self) -> str:
        said = "; ".join(f"{backend}: {reason}" for backend, reason in self.failed.items())
        return f"no plan for {self.network.name!r} could be run to its end ({said})"

    def _tried(self, plan: Plan, patience: float) -> Loaded:
        """Load the network divided according to the plan, estimate the time of a run, and return the loaded network.

        `patience` is the deadline of the first run in seconds. The network is simplified for the backends of the plan,
        as it is when the plan is followed.
        """
        optimized = planned(self.source, plan, self.runtime, self.source_options, without=self.late, logs=False)
        for refusal in optimized.refusals:
            if refusal.is_problem:
                self.failed.setdefault(refusal.backend, refusal.reasons[0])
        loaded = Loaded(self.runtime, optimized)
        try:
            loaded.quick = loaded.seconds(patience, self._rest())
        except BaseException:
            loaded.close()
            raise
        return loaded

    def _chosen(self, plans: Mapping[str, Plan]) -> Plan:
        if self._is_large and self.search.objective != "memory":
            self._load_again(plans)
        timings = self._settled(self._timings()) if self.search.objective != "memory" else {}
        if not timings and self.loaded and self.search.objective != "memory":
            raise InvalidArgumentError(self._nothing_runs())
        seconds = {name: timing.median / 1e3 for name, timing in timings.items()}
        if self.search.objective == "memory":
            seconds = {name: quick for name, quick in self.quick.items() if self._fits(name)}
        most = math.inf if self.search.most_seconds is None else self.search.most_seconds
        allowed = [name for name, taken in seconds.items() if taken <= most]
        if not allowed:
            raise self._beyond(seconds)
        name = self._best(allowed, seconds, timings)
        return replace(plans[name], measured=self._measured(seconds), chosen=name, units=self._units(name))

    def _units(self, name: str) -> dict[str, float]:
        """Return the milliseconds of each layer, compiled part and copy of the chosen plan, by name.

        Empty if there is no time left, or if the objective is not latency.
        """
        loaded, left = self.loaded.get(name), self._left()
        if loaded is None or self.search.objective != "latency" or left <= 2 * (_RUNS + 1) * self.quick[name]:
            return {}
        from interposer.session.stopwatch import measured_times  # noqa: PLC0415 - it takes examples from this package

        try:
            return dict(measured_times(loaded.watched, min(_TURN, left)).units)
        except InterposerError as error:
            _log.debug("the parts of the plan %s could not be timed: %s", name, error)
            return {}

    def _measured(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the milliseconds of one run of each plan, by name."""
        if self.search.objective == "throughput":
            return {name: taken * 1e3 / self._together() for name, taken in seconds.items()}
        return {name: taken * 1e3 for name, taken in {**self.quick, **seconds}.items()}

    def _together(self) -> int:
        """Return how many runs are measured at the same time: one per thread if the objective is throughput, else 1."""
        return thread_budget(self.runtime.options.num_threads) if self.search.objective == "throughput" else 1

    def _timings(self) -> dict[str, Timing]:
        """Time the loaded plans in turns, and return the times by name of the plan.

        There are as many rounds as the time of the search allows.
        """
        calls = {name: self._call(item) for name, item in self.loaded.items()}
        if not calls:
            return {}
        mixed = any(name not in self.ids for name in calls)
        left = max(self._left() * (0.35 if mixed else 0.9), _TURNS_SHARE * self.search.budget_seconds)
        turn = min(_TURN, left / (_ROUNDS * len(calls)))
        a_round = sum(max(1.2 * turn, 2 * self._together() * self.quick[name]) + self._rest() for name in calls)
        rounds = min(_ROUNDS, int(left / a_round)) if a_round else _ROUNDS
        if rounds < 1 and self.search.objective == "latency":
            return {name: Timing((self.quick[name] * 1e3,), self.quick[name] * 1e3) for name in calls}
        return take_turns(calls, max(1, rounds), turn, failed=self._failed, rest=self._rest())

    def _settled(self, timings: dict[str, Timing]) -> dict[str, Timing]:
        """Return the timings with more turns for the fastest backends, while they are undecided and time is left."""
        reserve = 0.5 * max(0.0, self._left()) if any(name not in self.ids for name in timings) else 0.0
        while True:
            finalists = _with_most_turns({name: item for name, item in timings.items() if name in self.ids})
            names = undecided(finalists)
            if len(names) < 2 or len(finalists[names[0]].turns) >= _MOST_TURNS:
                return timings
            calls = {name: self._call(self.loaded[name]) for name in names}
            a_round = sum(max(1.2 * _TURN, 2 * self._together() * self.quick[name]) + self._rest() for name in names)
            if _MORE * a_round > self._left() - reserve:
                return timings
            more = take_turns(calls, _MORE, _TURN, failed=self._failed, rest=self._rest())
            lost = calls.keys() - more.keys()
            timings = {name: item for name, item in timings.items() if name not in lost}
            timings |= {name: timings[name].followed_by(item) for name, item in more.items()}

    def _rest(self) -> float:
        """Return the pause before each measurement in seconds.

        The idle threads of other backends stop spinning in this time; with one thread, there is no pause.
        """
        return REST if thread_budget(self.runtime.options.num_threads) > 1 else 0.0

    def _beyond(self, seconds: Mapping[str, float]) -> InterposerError:
        """Return the error to raise if every plan exceeds the limits; it names the least memory or time that was found.

        `seconds` has the time of each plan that is within the limit of memory.
        """
        known = {name: report.peak for name, report in self.memory.items() if not report.unknown}
        unknown = sorted({item for report in self.memory.values() for item in report.unknown})
        silent = f"; the memory of parts on {', '.join(unknown)} is not known" if unknown else ""
        where, most = f"no plan for {self.network.name!r} is within", self.search.most_bytes
        if not seconds and most is not None and known:
            least = min(known, key=lambda name: known[name])
            text = f"{where} most_bytes={most:,}: the least that was found is {known[least]:,} bytes ({least}){silent}"
            what, needed, limit, unit = "memory of a plan", float(known[least]), float(most), "bytes"
        elif not seconds:
            return InvalidArgumentError(f"no plan for {self.network.name!r} can be chosen by memory{silent}")
        else:
            least, limit = min(seconds, key=lambda name: seconds[name]), float(self.search.most_seconds or 0)
            text = f"{where} most_seconds={limit:g}: the least that was found is {seconds[least]:.3g} seconds ({least})"
            what, needed, unit = "time of a plan", seconds[least], "seconds"
        return LimitExceededError(what, needed, limit, unit, f"{text}; raise the limit, or give other backends")

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
        alone = min(finalists, key=lambda name: seconds[name], default=mix)
        noise = max(_GAIN, _spread(timings[alone].turns))
        if mix in ("", alone) or seconds[mix] >= seconds[alone] * (1 - noise):
            return alone
        return mix if self._is_faster(mix, alone) else alone

    def _is_faster(self, mix: str, alone: str) -> bool:
        """Return True if the plan `mix`, with several backends, beats the plan `alone` in nearly all of a few turns.

        Only these two are compared. With many plans, one of them wins by chance; this second comparison guards against
        it.
        """
        calls = {"mix": self._call(self.loaded[mix]), "alone": self._call(self.loaded[alone])}
        left = self._left()
        if left < 2 * _DUEL * self._together() * (self.quick[mix] + self.quick[alone]):
            return False
        turns = take_turns(calls, _DUEL, min(_TURN, left / (3 * _DUEL)), failed=self._failed, rest=self._rest())
        if len(turns) < len(calls):
            return False
        pairs = zip(turns["mix"].turns, turns["alone"].turns, strict=True)
        won = sum(ours < theirs * (1 - _GAIN) for ours, theirs in pairs)
        return won >= _DUEL - 1


def _with_most_turns(timings: Mapping[str, Timing]) -> dict[str, Timing]:
    """Return only the timings with the most turns.

    The other candidates were measured at other times, and are not comparable with them.
    """
    most = max((len(timing.turns) for timing in timings.values()), default=0)
    return {name: item for name, item in timings.items() if len(item.turns) == most}


def _spread(times: Sequence[float]) -> float:
    """Return how much times vary: half the distance between their lower and upper quartile, relative to the median."""
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / (2 * ordered[len(ordered) // 2])


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive blocks (first, last plus one) in the order in which they are timed.

    These are the single blocks of `count` blocks, then the whole network, then ranges of increasing length.
    """
    yield from ((place, place + 1) for place in range(count))
    yield 0, count
    for length in range(2, count):
        yield from ((place, place + length) for place in range(count - length + 1))


def _copy_seconds(size: int) -> float:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return min(times)
