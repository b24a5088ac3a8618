"""`Program`: a module of PyTorch with the arguments of three calls, and the registry of all programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

__all__ = ["PROGRAMS", "Call", "Program", "built", "ids", "images", "program", "randomized", "sound"]


@dataclass
class Call:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Program:
    """A module in evaluation mode, and calls: the second has the shapes of the first, and the third other shapes.

    `strict` is True if the export has to trace the module with Dynamo.
    """

    module: Any
    calls: tuple[Call, Call, Call]
    strict: bool = False


PROGRAMS: Final[dict[str, Callable[[], Program]]] = {}
"""Functions that build a program, by its name."""


def program(name: str) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Register the decorated function as the program `name`."""

    def register(build: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[name] = build
        return build

    return register


def built(module: Any, first: Callable[[int], Call], other: Callable[[int], Call] | None = None) -> Program:
    """Return a program; `first` makes the arguments of the first two calls from a seed, and `other` the third ones."""
    module = randomized(module.eval())
    return Program(module, (first(1), first(2), (other or first)(3)))


def randomized(module: Any) -> Any:
    """Change the initial values of a module: no bias is 0, and no scale is 1."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point() and tensor.numel() and "inv_freq" not in name:
                noise = torch.rand(tensor.shape, generator=generator) * 0.1 + 0.02
                is_pattern = name.endswith(_PATTERNS)
                tensor.add_(0 if is_pattern else noise.to(tensor.dtype))
    return module


_PATTERNS: Final = ("position_ids", "embed_positions", "sin", "cos", "mask", "bias_mask", "masked_bias", "window")


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ids(seed: int, shape: tuple[int, ...], vocabulary: int = 90) -> torch.Tensor:
    """Return random numbers of tokens, none of which is a special one."""
    return torch.randint(5, vocabulary, shape, generator=_generator(seed))


def images(seed: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return random numbers of a normal distribution."""
    return torch.randn(shape, generator=_generator(seed))


sound = images
