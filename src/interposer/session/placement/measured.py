"""The search for the fastest placement: parts are compiled and timed, the best plans are timed whole, one is kept."""

from __future__ import annotations

import hashlib
import logging
import math
import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from interposer._version import __version__
from interposer.cache import read_cached, write_cached
from interposer.config import thread_budget
from interposer.errors import (
    DeadlineExceededError,
    InterposerError,
    InvalidArgumentError,
    LimitExceededError,
    UnsupportedLayerError,
    culprit,
)
from interposer.ir.network import Network
from interposer.ir.optimized import OptimizedNetwork
from interposer.ops.control import Constant
from interposer.optimizer import OptimizerOptions, optimize, simplified
from interposer.optimizer.offers import Offers
from interposer.runtime import NetworkId, Runtime
from interposer.session.placement.cuts import Block, blocks_of, example, part_network
from interposer.session.placement.plan import Plan
from interposer.session.placement.search import Candidate, Part, best_plans, with_bounds
from interposer.session.timing import take_turns

__all__ = ["Search", "made_with", "place", "planned"]

_log = logging.getLogger("interposer.session")
_OBJECTIVES: Final = ("latency", "throughput", "memory")
Exclusions = Mapping[str, Sequence[str]]
_PARTS_SHARE: Final = 0.6
"""How much of the budget is spent on parts; the rest is for whole plans."""
_GRACE: Final = 10.0
"""Seconds beyond the budget in which blocks are timed that were not yet, as without them there are no mixes."""
_RUNS: Final = 5
_PATIENCE: Final = 20.0
"""Seconds, or the budget where that is more, after which a first run is given up, and its backend with it."""
_SLOW: Final = 30
"""So many times the best time, but `_LEAST_PATIENCE` at least, and a first run is given up as too slow."""
_LEAST_PATIENCE: Final = 5.0
_GAIN: Final = 0.02
"""The part of the time that a mix must gain, at least."""
_DUEL: Final = 7
_TURN: Final = 0.1
_CLOSE: Final = 2.0
"""Plans that take so many times the best time in a few runs have no turns."""
_PART_SECONDS: Final = 0.1
"""How long a part is timed, beside one run at least."""


@dataclass(frozen=True)
class Search:
    """What to look for, and for how long.

    Args:
        budget_seconds: how long to measure; each backend is tried once in any case.
        objective: "latency" (of one run), "throughput" (of runs at the same time, one for each thread) or "memory"
            (arenas and constants).
        most_bytes: plans that need more memory are left out.
        most_seconds: plans whose runs take longer are left out.
        blocks: into how many blocks the network is cut at most.
        mixes: how many plans of several backends are timed whole.
    """

    budget_seconds: float = 30.0
    objective: str = "latency"
    most_bytes: int | None = None
    most_seconds: float | None = None
    blocks: int = 8
    mixes: int = 3

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise InvalidArgumentError(
                f"the objective of a placement is one of {', '.join(_OBJECTIVES)}, not {self.objective!r}"
            )
        if not (self.budget_seconds > 0 and math.isfinite(self.budget_seconds)):
            raise InvalidArgumentError(f"budget_seconds must be more than 0, not {self.budget_seconds}")
        if self.blocks < 1 or self.mixes < 0:
            raise InvalidArgumentError(f"expected 1 block or more and 0 mixes or more, not {self.blocks}, {self.mixes}")


def place(
    network: Network,
    runtime: Runtime,
    backends: Iterable[str] | None = None,
    options: OptimizerOptions | None = None,
    search: Search | None = None,
) -> Plan:
    """Find out by measuring which backend should run which part of a network.

    Blocks between cut points are compiled and timed on every backend, alone and joined, as far as the budget goes. The
    plans of least cost by that (the sum of parts and of copies at borders; a shortest path, found exactly) and those of
    each backend alone are then timed whole, in turns, and the best is taken; a mix only where it is better than
    every backend alone by more than the noise. The plan is kept in the cache folder, and found there by the network's
    content, shapes, backends with their versions, threads, and machine.

    Args:
        backends: ids; None means all that are available here, also those that are used by name only.

    Raises:
        LimitExceededError: no plan is within the limits.
        InterposerError: whatever `optimize` raises where no backend can run the network.
    """
    search, options = search or Search(), options or OptimizerOptions()
    ids = _ids(runtime, backends)
    simple = simplified(network, ids, runtime.device_spec, options)
    told = made_with(runtime, ids)
    name = f"plan-{_key(simple, ids, told, options, search)}.json"
    kept = _kept(name)
    if kept is not None:
        return kept
    plan = _Placer(simple, runtime, ids, options, search, told).plan()
    write_cached(name, plan.to_json().encode())
    return plan


def planned(
    network: Network,
    plan: Plan,
    runtime: Runtime,
    options: OptimizerOptions | None = None,
    without: Collection[str] = (),
) -> OptimizedNetwork:
    """A network divided as a plan says; backends that are not there are left out, and differences are logged.

    Nothing runs on the backends in `without`, as they have failed: the others of the plan take over, or where none is
    left, those that there are by default.
    """
    options, available = options or OptimizerOptions(), runtime.registry.available()
    ids = [one for one in plan.backends if one in available and one not in without]
    chosen = ids or [one for one in runtime.device_spec.default_backends if one not in without]
    simple = simplified(network, chosen, runtime.device_spec, options)
    if not without:
        for difference in plan.differences(simple.graph, made_with(runtime, plan.backends), available):
            _log.warning("the plan for %r: %s", plan.network, difference)
    hints = {layer: backend for layer, backend in plan.hints(simple.graph).items() if backend in chosen}
    exclude = _both(options.exclude, plan.exclude, runtime)
    return optimize(simple, chosen, runtime.device_spec, replace(options, rewrite=False, hints=hints, exclude=exclude))


def _both(asked: Exclusions, planned: Exclusions, runtime: Runtime) -> dict[str, list[str]]:
    """What is excluded for one reason or the other; a plan may speak of backends that nobody knows here."""
    known = {kind: [one for one in ids if one in runtime.registry] for kind, ids in planned.items()}
    return {kind: [*asked.get(kind, ()), *known.get(kind, ())] for kind in asked.keys() | known.keys()}


def made_with(runtime: Runtime, ids: Iterable[str]) -> dict[str, Any]:
    """What a plan depends on beside the network."""
    records = {one.id: one.version for one in runtime.registry.records()}
    return {
        "interposer": __version__,
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "threads": thread_budget(runtime.options.num_threads),
        "versions": {one: records.get(one, "") for one in ids},
    }


def _ids(runtime: Runtime, backends: Iterable[str] | None) -> list[str]:
    available = runtime.registry.available()
    given = list(available) if backends is None else [backends] if isinstance(backends, str) else list(backends)
    return sorted(given, key=lambda one: one == "CpuRef")


def _key(network: Network, ids: Sequence[str], told: Mapping[str, Any], options: object, search: Search) -> str:
    """A number for everything that a plan depends on."""
    digest = hashlib.sha256(repr((ids, dict(told), options, search)).encode())
    for layer in network.graph.topological():
        constant = layer.op.value if isinstance(layer.op, Constant) else None
        shown = layer.kind if constant is not None else repr(layer.op)
        infos = [(value.name, str(value.known)) for value in (*layer.values, *layer.outputs)]
        digest.update(repr((layer.name, shown, infos)).encode())
        if constant is not None and constant.dtype != object:
            digest.update(np.ascontiguousarray(constant).view(np.uint8).reshape(-1).data if constant.size else b"")
    return digest.hexdigest()[:32]


def _kept(name: str) -> Plan | None:
    content = read_cached(name)
    try:
        return None if content is None else Plan.from_json(content.decode())
    except (InvalidArgumentError, UnicodeDecodeError):
        return None  # damaged: it is made again


class _Placer:
    def __init__(
        self, network: Network, runtime: Runtime, ids: Sequence[str], options: OptimizerOptions, search: Search,
        told: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.network, self.runtime, self.ids, self.search, self.told = network, runtime, list(ids), search, told
        self.options = replace(options, rewrite=False)
        self.end = time.monotonic() + search.budget_seconds
        self.limit = self.end + _GRACE
        self.excluded = {kind: tuple(ids) for kind, ids in options.exclude.items()}
        self.pinned = {layer.name: layer.hint for layer in network.graph if layer.hint is not None}
        self.patience = max(_PATIENCE, search.budget_seconds)
        self.failed: dict[str, str] = {}
        self.late: set[str] = set()
        self.quick: dict[str, float] = {}
        self.errors: list[InterposerError] = []
        self.cost: dict[str, float] = {}

    def plan(self) -> Plan:
        """The best plan that is found."""
        loaded: dict[str, _Loaded] = {}
        try:
            plans = self._singles()
            self._try_all(plans, loaded)
            blocks = blocks_of(self.network.graph, self.search.blocks)
            if len(self.ids) > 1 and len(blocks) > 1 and time.monotonic() < self.limit:
                mixes = self._mixes(blocks)
                self._try_all(mixes, loaded)
                plans |= mixes
            if not loaded:
                raise self.errors[0] if self.errors else InvalidArgumentError(self._nothing_runs())
            return replace(self._chosen(plans, loaded), failed=self.failed, cost=self.cost)
        finally:
            for one in loaded.values():
                one.close()

    # --- candidates ---------------------------------------------------------------------------------------------------

    def _singles(self) -> dict[str, Plan]:
        """Every backend alone, completed by the others where it cannot run a layer."""
        orders = {one: (one, *(other for other in self.ids if other != one)) for one in self.ids}
        return {one: self._as_plan(order, {}) for one, order in orders.items()}

    def _as_plan(self, order: tuple[str, ...], layers: Mapping[str, str]) -> Plan:
        return Plan(self.network.name, order, {**layers, **self.pinned}, self.excluded, made_with=self.told)

    def _mixes(self, blocks: Sequence[Block]) -> dict[str, Plan]:
        parts = self._parts(blocks)
        border = self._borders(blocks)
        found = best_plans(len(blocks), parts, border, self.search.mixes + len(self.ids))
        if found:
            least = best_plans(len(blocks), with_bounds(len(blocks), parts), border, 1)[0].seconds
            self.cost = {"milliseconds": found[0].seconds * 1e3, "bound": least * 1e3}
            self.cost["gap"] = 1 - least / found[0].seconds if found[0].seconds else 0.0
        mixed = [one for one in found if len(set(one.backends())) > 1][: self.search.mixes]
        return {f"mix {number}": self._mixed(one, blocks) for number, one in enumerate(mixed, 1)}

    def _mixed(self, way: Candidate, blocks: Sequence[Block]) -> Plan:
        pairs = zip(way.backends(), blocks, strict=True)
        layers = {layer.name: backend for backend, block in pairs for layer in block.layers}
        return self._as_plan(tuple(self.ids), layers)

    def _parts(self, blocks: Sequence[Block]) -> dict[Part, float]:
        """Seconds of one run of each part, the short ones first, as long as there is time."""
        end = self.end - (1 - _PARTS_SHARE) * self.search.budget_seconds
        found: dict[Part, float] = {}
        refused: set[tuple[str, int]] = set()
        for first, last in _spans(len(blocks)):
            for backend in self.ids:
                if backend in self.late or any((backend, block) in refused for block in range(first, last)):
                    continue
                if time.monotonic() > (end if last - first > 1 else self.limit):
                    return found
                layers = [layer for block in blocks[first:last] for layer in block.layers]
                seconds = self._part_seconds(backend, layers)
                if seconds is not None:
                    found[first, last, backend] = seconds
                elif last - first == 1:
                    refused.add((backend, first))
        return found

    def _part_seconds(self, backend: str, layers: Sequence[Any]) -> float | None:
        """What a part takes on a backend; None where it cannot run there, or must not."""
        for layer in layers:
            if self.pinned.get(layer.name, backend) != backend:
                return None
        try:
            network = part_network(self.network.graph, layers, "part")
            optimized = optimize(network, [backend], self.runtime.device_spec, replace(self.options, hints={}))
            with _Loaded(self.runtime, optimized) as loaded:
                return loaded.seconds(self.patience)
        except InterposerError as error:
            self._blame(backend, error)
            _log.debug("a part of %d layers does not run on %s: %s", len(layers), backend, error)
            return None

    def _blame(self, backend: str, error: InterposerError) -> None:
        """Keep what a backend did wrong; it is no fault to refuse layers. One that hangs gets no more turns."""
        if isinstance(error, DeadlineExceededError):
            self.late.add(backend)
        if not isinstance(error, UnsupportedLayerError):
            self.failed.setdefault(backend, str(error).partition("\n")[0])

    def _borders(self, blocks: Sequence[Block]) -> Callable[[int, str, str], float]:
        """Seconds that a tensor takes from one backend to another: nothing where both work on the same memory."""
        chosen = [self.runtime.registry.get(one) for one in self.ids]
        offers = Offers.of(chosen, set(self.ids), self.options.model_options)
        second_per_byte = _copy_seconds(1 << 20) / (1 << 20)

        def border(place: int, source: str, target: str) -> float:
            shared = set(offers.preferences[source]) & set(offers.preferences[target])
            return 0.0 if source == target or shared else blocks[place - 1].leaving * second_per_byte

        return border

    # --- the choice ---------------------------------------------------------------------------------------------------

    def _try_all(self, plans: Mapping[str, Plan], loaded: dict[str, _Loaded]) -> None:
        """Load plans, and run each a few times; what does not run, or is by far too slow, is left out."""
        for name, plan in plans.items():
            if self.late & {plan.backends[0], *plan.layers.values()}:
                continue
            least = min(self.quick.values(), default=math.inf)
            patience = min(self.patience, max(_LEAST_PATIENCE, _SLOW * least))
            try:
                made = self._tried(plan, patience)
            except InterposerError as error:
                _log.debug("the plan %s does not run: %s", name, error)
                self.errors.append(error)
                if patience == self.patience or not isinstance(error, DeadlineExceededError):
                    self._blame(culprit(error) or plan.backends[0], error)
                continue
            loaded[name] = made
            self.quick[name] = made.quick

    def _nothing_runs(self) -> str:
        said = "; ".join(f"{backend}: {reason}" for backend, reason in self.failed.items())
        return f"no plan for {self.network.name!r} could be run to its end ({said})"

    def _tried(self, plan: Plan, patience: float) -> _Loaded:
        """The network as the plan says, loaded and timed."""
        optimized = planned(self.network, plan, self.runtime, self.options, without=self.late)
        for one in optimized.refusals:
            if one.is_fault:
                self.failed.setdefault(one.backend, one.reasons[0])
        made = _Loaded(self.runtime, optimized)
        try:
            made.quick = made.seconds(patience)
        except BaseException:
            made.close()
            raise
        return made

    def _chosen(self, plans: Mapping[str, Plan], loaded: Mapping[str, _Loaded]) -> Plan:
        left = max(0.2, self.end - time.monotonic())
        least = min(self.quick.values())
        close = [name for name in loaded if self.search.objective != "latency" or self.quick[name] <= _CLOSE * least]
        calls = {name: self._call(loaded[name]) for name in close}
        timings = take_turns(calls, rounds=_RUNS, seconds=min(0.3, left / (_RUNS * len(calls))), failed=self._failed)
        if not timings:
            raise InvalidArgumentError(self._nothing_runs())
        milliseconds = {name: seconds * 1e3 for name, seconds in self.quick.items() if name not in calls}
        milliseconds |= {name: timing.median for name, timing in timings.items()}
        allowed = [name for name in timings if self._within(loaded[name], milliseconds[name] / 1e3)]
        if not allowed:
            best = min(milliseconds.values()) / 1e3
            raise LimitExceededError("time or memory of every plan", best, self.search.most_seconds or 0.0, "seconds")
        name = self._best(allowed, loaded, milliseconds, {one: timings[one].turns for one in allowed})
        return replace(plans[name], measured=milliseconds, chosen=name)

    def _failed(self, name: str, error: Exception) -> None:
        _log.debug("the plan %s failed while it was timed: %s", name, error)
        if isinstance(error, InterposerError):
            self._blame(culprit(error) or name, error)

    def _call(self, loaded: _Loaded) -> Callable[[], object]:
        return loaded.run_together if self.search.objective == "throughput" else loaded.run

    def _within(self, loaded: _Loaded, seconds: float) -> bool:
        most_bytes, most_seconds = self.search.most_bytes, self.search.most_seconds
        fits = most_bytes is None or loaded.bytes <= most_bytes
        return fits and (most_seconds is None or seconds <= most_seconds)

    def _best(
        self, names: Sequence[str], loaded: Mapping[str, _Loaded], milliseconds: Mapping[str, float],
        turns: Mapping[str, Sequence[float]],
    ) -> str:  # fmt: skip
        if self.search.objective == "memory":
            return min(names, key=lambda name: (loaded[name].bytes, milliseconds[name]))
        best = min(names, key=lambda name: milliseconds[name])
        alone = min((one for one in names if one in self.ids), key=lambda name: milliseconds[name], default=best)
        noise = max(_GAIN, _spread(turns[alone]))
        if best == alone or milliseconds[best] >= milliseconds[alone] * (1 - noise):
            return alone
        return best if self._is_faster(loaded[best], loaded[alone]) else alone

    def _is_faster(self, mix: _Loaded, alone: _Loaded) -> bool:
        """Whether a mix is the better one again, of the two alone and in nearly all turns: many were tried."""
        calls = {"mix": self._call(mix), "alone": self._call(alone)}
        turns = take_turns(calls, _DUEL, _TURN, failed=self._failed)
        if len(turns) < len(calls):
            return False
        pairs = zip(turns["mix"].turns, turns["alone"].turns, strict=True)
        won = sum(ours < theirs * (1 - _GAIN) for ours, theirs in pairs)
        return won >= _DUEL - 1


def _spread(times: Sequence[float]) -> float:
    """How far half of the turns are from the median, as a part of it."""
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / (2 * ordered[len(ordered) // 2])


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """All ranges of blocks: single ones, the whole, then longer and longer ones."""
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


class _Loaded:
    """A network that is loaded for a while, with numbers for its inputs."""

    def __init__(self, runtime: Runtime, optimized: OptimizedNetwork) -> None:
        self._runtime = runtime
        self._network_id: NetworkId = runtime.load_network(optimized)
        self.quick = math.inf
        bindings = [layer.op.binding_id for layer in optimized.inputs]  # type: ignore[attr-defined] # Inputs
        infos = [layer.output.known for layer in optimized.inputs]
        self._inputs = {key: example(info, seed) for seed, (key, info) in enumerate(zip(bindings, infos, strict=True))}

    def __enter__(self) -> _Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> None:
        """Run once."""
        self._runtime.enqueue_workload(self._network_id, self._inputs)

    def run_together(self) -> None:
        """Run once for each thread, at the same time."""
        count = thread_budget(self._runtime.options.num_threads)
        pending = [self._runtime.submit(self._network_id, self._inputs) for _ in range(count)]
        for one in pending:
            one.result()

    def seconds(self, patience: float) -> float:
        """The median of a few runs behind the first; `DeadlineExceededError` where that one takes so many seconds."""
        self._runtime.enqueue_workload(self._network_id, self._inputs, deadline=patience)
        times: list[float] = []
        while len(times) < _RUNS and sum(times) < _PART_SECONDS:
            start = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2]

    @property
    def bytes(self) -> int:
        """The memory that the network needs."""
        return self._runtime.memory(self._network_id).peak

    def close(self) -> None:
        """Unload it."""
        self._runtime.unload_network(self._network_id)
