"""Calibration: run a float network on samples, and observe the values of all tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.backend import Options
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops.control import Constant, Output
from interposer.optimizer import OptimizerOptions
from interposer.quantization.observers import Observer
from interposer.quantization.samples import Samples
from interposer.runtime import Runtime
from interposer.session import load
from interposer.session.fallback import used_options

__all__ = ["ChannelMeans", "Progress", "Runs", "observe_all", "observed_values", "silent", "values_of_samples"]

Progress: TypeAlias = Callable[[str, int, int], None]


def silent(step: str, finished: int, total: int) -> None:
    """Do nothing; the default of `progress`, whose arguments are the current step, and the finished and all steps."""


@dataclass(frozen=True)
class Runs:
    """How networks run on samples: on which backends (None means the default ones), and who hears of the progress."""

    backends: Sequence[str] | None = None
    runtime: Runtime | None = None
    progress: Progress = silent
    model_options: Mapping[str, Options] | None = None


class ChannelMeans:
    """The mean of the values of each channel of a tensor, over all samples and all other axes."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.channel_totals: NDArray[np.float64] | None = None
        self.count = 0

    def observe(self, values: Array) -> None:
        """Add the values of one sample, which may be empty."""
        if not values.size:
            return
        rows = np.moveaxis(values, self.axis, -1).reshape(-1, values.shape[self.axis])
        channel_sums = rows.sum(axis=0, dtype=np.float64)
        self.channel_totals = channel_sums if self.channel_totals is None else self.channel_totals + channel_sums
        self.count += len(rows)

    @property
    def means(self) -> NDArray[np.float64] | None:
        """The mean of each channel, or None if nothing was observed."""
        return None if self.channel_totals is None or not self.count else self.channel_totals / self.count


def observed_values(network: Network) -> list[Value]:
    """Return the float32 values of a network that calibration observes: all but constants and values in regions."""
    layers = [layer for layer in network.graph.topological() if not isinstance(layer.op, Constant | Output)]
    values = [value for layer in layers for value in layer.outputs]
    return [value for value in values if value.info is not None and value.known.dtype is DataType.FLOAT32]


def values_of_samples(
    networks: Sequence[Network],
    names: Sequence[str],
    samples: Samples,
    observe: Callable[..., None],
    runs: Runs,
    step: str,
) -> None:
    """Run networks as they are, without rewrites, on each sample, and pass their named values to `observe`.

    `observe` is called for each sample with a mapping from name to array for each network. Names are those of
    `Value.name`. `step` names the step in reports of the progress.
    """
    if not names:
        return
    options = OptimizerOptions(rewrite=False, model_options=used_options(runs.model_options, runs.backends))
    with ExitStack() as stack:
        models = [
            stack.enter_context(
                load(_with_values(network, names), runs.backends, runtime=runs.runtime, options=options)
            )
            for network in networks
        ]
        for sample_number, sample in enumerate(samples):
            runs.progress(step, sample_number, len(samples))
            observe(*(dict(zip(names, model.run(sample), strict=True)) for model in models))
    runs.progress(step, len(samples), len(samples))


def _with_values(network: Network, names: Sequence[str]) -> Network:
    """Return a copy of a network whose outputs are the named values, in order; states are still set."""
    graph = network.graph.clone()
    for layer in graph.outputs:
        graph.erase(layer)
    values = {value.name: value for layer in graph for value in layer.outputs}
    taken_ids = {layer.op.binding_id for layer in graph.sinks}  # type: ignore[attr-defined]
    free_ids = (binding_id for binding_id in range(len(names) + len(taken_ids)) if binding_id not in taken_ids)
    for name, binding_id in zip(names, free_ids, strict=False):
        graph.add(Output(binding_id), [values[name]], name=f"observed {name}")
    return Network(network.name, graph)


def observe_all(
    network: Network,
    samples: Samples,
    create: Callable[[], Observer],
    channels: Mapping[Value, int],
    runs: Runs,
) -> tuple[dict[Value, Observer], dict[Value, ChannelMeans]]:
    """Return an observer for each float32 value of a network, after all samples, and the means of some channels.

    `create` makes an observer. `channels` has the channel axis of each value whose channels are averaged.
    """
    values = {value.name: value for value in observed_values(network)}
    observers = {value: create() for value in values.values()}
    means = {value: ChannelMeans(axis) for value, axis in channels.items()}

    def observe(arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            observers[values[name]].observe(array)
            if values[name] in means:
                means[values[name]].observe(array)

    values_of_samples([network], list(values), samples, observe, runs, "calibrating")
    return observers, means
