"""The tasks of workers: judge random networks by number, or judge one network that is sent to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.records import dataclass
from interposer.core.schema import registered_ops
from interposer.ir.network import Network
from interposer.ops import Dequantize, Quantize
from interposer.testing.judge.judging import judge, judged_without_culprit
from interposer.testing.judge.routes import Route
from interposer.testing.judge.seat import Seat
from interposer.testing.judge.serving import Workplace
from interposer.testing.judge.subject import AS_BUILT, Conditions, Outcome, Sort, Subject, Verdict
from interposer.testing.random_networks import RandomNetwork, random_network

__all__ = ["GENERATOR", "Judged", "Numbers", "One", "Plan", "Served", "drawn", "subjects_of"]

GENERATOR: Final = "the generator of random networks"
_FLOAT_ROUTES: Final = (Route.ONNX, None, Route.ONNX, Route.TFLITE)
_QUANTIZED_ROUTES: Final = (Route.ONNX, None, Route.ONNX_INEXACT, None, Route.TFLITE, None)


@dataclass(frozen=True)
class Plan:
    """The random networks to judge, and the ways in which they are run.

    Args:
        seed: the seed that identifies the sequence of networks.
        kind: "float" or "quantized"; None alternates between both.
        ids: the backends to use, in order of preference; None means all of the workers' setup.
        favoured: names of operators that occur more often.
        ways: "all", or a restriction for every network: "whole" (as built, on the backend alone) or "divided" (as
            built, with some layers on the reference).
        max_layers: the maximum number of layers of a network.
    """

    seed: int
    kind: str | None = None
    ids: tuple[str, ...] | None = None
    favoured: tuple[str, ...] = ()
    ways: str = "all"
    max_layers: int = 12


@dataclass(frozen=True)
class Judged:
    """The result of one random network: its number and kind, and a verdict for each condition under which it ran."""

    number: int
    kind: str
    verdicts: tuple[Verdict, ...]


def drawn(plan: Plan, number: int) -> RandomNetwork:
    """Return the random network with this number among those of the plan."""
    ops = registered_ops()
    favoured = [ops[name] for name in plan.favoured if name in ops]
    return random_network(plan.seed, number, kind=plan.kind, favoured=favoured, max_layers=plan.max_layers)


def subjects_of(plan: Plan, drawn_network: RandomNetwork) -> Iterator[Subject]:
    """Yield a random network with the conditions that it is judged under: as built, and often through a model file.

    The network and its number decide about the conditions, so that a repetition has the same ones.
    """
    yield Subject(drawn_network.network, drawn_network.feeds, _conditions(plan, drawn_network), drawn_network.id)
    if plan.ways != "all":
        return
    routes = _QUANTIZED_ROUTES if drawn_network.kind == "quantized" else _FLOAT_ROUTES
    route = routes[_mixed(drawn_network.seed, drawn_network.number, 1) % len(routes)]
    if route is not None:
        integers = route is Route.ONNX_INEXACT
        yield Subject(
            drawn_network.network, drawn_network.feeds, Conditions(route.value, integers=integers), drawn_network.id
        )


def _conditions(plan: Plan, drawn_network: RandomNetwork) -> Conditions:
    bits = _mixed(drawn_network.seed, drawn_network.number, 2)
    divided = plan.ways == "divided" or (plan.ways == "all" and bits % 5 == 0)
    integers = bits // 5 % 2 == 0 and _has_both_ways(drawn_network.network)
    return Conditions(
        AS_BUILT, bits // 10 % 5 != 0, integers, _every_other(drawn_network.network, bits // 50) if divided else ()
    )


def _has_both_ways(network: Network) -> bool:
    """Return True if a network has Quantize and Dequantize layers, so that rewrites can compute in integers."""
    return {Quantize, Dequantize} <= {type(layer.op) for layer in network}


def _every_other(network: Network, bits: int) -> tuple[str, ...]:
    """Return the names of about half of the layers, chosen by `bits`, whose first 48 bits are used in turn."""
    names = [layer.name for layer in network if layer.op.executable]
    return tuple(name for index, name in enumerate(names) if bits >> index % 48 & 1)


def _mixed(seed: int, number: int, purpose: int) -> int:
    """Return 64 pseudo-random bits for a network, by the mixing function of SplitMix64.

    Different values of `purpose` give independent bits for the same network.
    """
    state = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + purpose * 0x94D049BB133111EB) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        state = (state ^ state >> shift) * factor % 2**64
    return state


@dataclass(frozen=True)
class Numbers:
    """A task that judges the networks from `start` up to `stop`, and yields a `Judged` for each, in order."""

    plan: Plan
    start: int
    stop: int

    def results(self, workplace: Workplace) -> Iterator[Judged]:
        """Generate the networks and judge them; yield the result of each."""
        for number in range(self.start, self.stop):
            yield self._judged(workplace.seat, number)

    def _judged(self, seat: Seat, number: int) -> Judged:
        try:
            drawn_network = drawn(self.plan, number)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            verdict = Verdict(Outcome.FINDING, Conditions(), Sort.ERROR, message, GENERATOR)
            return Judged(number, self.plan.kind or "unknown", (verdict,))
        verdicts = tuple(judge(seat, subject, self.plan.ids) for subject in subjects_of(self.plan, drawn_network))
        return Judged(number, drawn_network.kind, verdicts)


@dataclass(frozen=True, eq=False)
class One:
    """A task that judges one network on the backends `ids`.

    If `blame` is True and the network fails, it is run again with fewer backends, and the verdict names the culprit.
    """

    subject: Subject
    ids: Sequence[str]
    blame: bool = True

    def results(self, workplace: Workplace) -> Iterator[Verdict]:
        """Judge the network and yield the only result, its verdict."""
        yield (judge if self.blame else judged_without_culprit)(workplace.seat, self.subject, self.ids)


@dataclass(frozen=True)
class Served:
    """A task that yields the ids and versions of the backends under test, without judging a network."""

    def results(self, workplace: Workplace) -> Iterator[tuple[tuple[str, str], ...]]:
        """Yield the only result: a pair of id and version for each backend."""
        yield tuple((backend.id, backend.version) for backend in workplace.seat.backends)
