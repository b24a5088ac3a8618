"""The check on random networks; what fails is made as small as possible, and written down as a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from interposer.errors import InterposerError, MissingDependencyError
from interposer.ir.network import Network
from interposer.testing.bench import Bench, view_of
from interposer.testing.compare import disagreements
from interposer.testing.contracts import on_backend
from interposer.testing.networks import feeds_for, hypothesis, networks
from interposer.testing.outcome import Skipped
from interposer.testing.replay import write_script

__all__: list[str] = []

How = Mapping[str, Any]


class _Disagreement(Exception):  # noqa: N818 - found, not raised by a fault of the kit
    def __init__(self, network: Network, seed: int, how: How, text: str) -> None:
        self.network, self.seed, self.how, self.text = network, seed, how, text
        super().__init__(text)


@on_backend("whole", "divided", "others")
def random(bench: Bench, variant: str) -> Iterator[str]:
    """On random networks the backend agrees with the reference: by itself, divided, and beside other backends.

    What the backend does not take is left to the reference. Networks with discontinuous layers, where a small
    difference becomes a large one, are compared layer by layer. The smallest network that fails is written down as a
    script.
    """
    try:
        hypothesis()
    except MissingDependencyError as error:
        raise Skipped(str(error)) from None
    if variant == "others":
        yield from _beside_others(bench)
    else:
        yield from _tried(bench, _whole if variant == "whole" else _divided)


def _beside_others(bench: Bench) -> Iterator[str]:
    others = [other.id for other in bench.others if other.id != bench.backend.id]
    if not others:
        raise Skipped("there are no other backends here")
    for other in others:
        for how in ({"beside": [other, "Oracle"]}, {"before": [other], "beside": ["Oracle"]}):
            yield from _tried(bench, _always(how))


def _always(how: How) -> Callable[[Any, Network], How]:
    return lambda draw, network: how


def _whole(draw: Any, network: Network) -> How:
    return {"beside": ["Oracle"], "rewrite": draw(hypothesis().strategies.booleans())}


def _divided(draw: Any, network: Network) -> How:
    names = [layer.name for layer in view_of(network.graph)]
    strategies = hypothesis().strategies
    held_back = draw(strategies.lists(strategies.sampled_from(names), unique=True)) if names else []
    return {"beside": ["Oracle"], "held_back": held_back}


def _tried(bench: Bench, choose: Callable[[Any, Network], How]) -> Iterator[str]:
    """Try random networks, each optimized as `choose` says; yields what went wrong with the simplest that failed."""
    found, strategies = hypothesis(), hypothesis().strategies

    def agree(network: Network, seed: int, data: Any) -> None:
        how = choose(data.draw, network)
        fault = _fault(bench, network, seed, how)
        if fault:
            raise _Disagreement(network, seed, how, fault)

    drawn = networks(favoured={type(sample.op) for sample in bench.taken})
    settings = found.settings(
        max_examples=bench.settings.examples, deadline=None, database=None, derandomize=True, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(found.HealthCheck),
    )  # fmt: skip
    try:
        settings(found.given(drawn, strategies.integers(0, 1 << 16), strategies.data())(agree))()
    except _Disagreement as one:
        yield _reported(bench, one)


def _fault(bench: Bench, network: Network, seed: int, how: How) -> str:
    try:
        return "\n".join(disagreements(bench, network, feeds_for(network.graph, seed), **how))
    except InterposerError as error:
        return str(error)


def _reported(bench: Bench, one: _Disagreement) -> str:
    feeds = feeds_for(one.network.graph, one.seed)
    path = write_script(Path(bench.settings.folder), bench.backend.id, one.network, feeds, one.how, one.text)
    return f"{one.text}\n{one.network.graph}\npython {path} shows it again"
