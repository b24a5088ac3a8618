"""Small files of `torch.export.save`, which are damaged in many ways."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Counting(torch.nn.Module):
    """A network with a weight, a buffer that is not saved, a constant, a state, and a nested result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("offset", torch.arange(3.0), persistent=False)

    def forward(self, x, *, options):  # type: ignore[no-untyped-def] # as modules are written
        """Return a dictionary of a tensor, a size and None."""
        self.calls.add_(1)
        y = torch.nn.functional.gelu(self.linear(x)) * self.calls + self.offset + torch.tensor([1.0, 2.0, 3.0])
        return {"y": y * options["scale"], "size": x.shape[0] * 2, "none": None}


def counting(folder: Path) -> Path:
    """Save a program with an open dimension."""
    size = {"x": {0: torch.export.Dim("batch", max=64)}, "options": {"scale": None}}
    return _saved(folder, Counting(), (torch.ones(3, 4),), {"options": {"scale": torch.ones(1)}}, size)


def pictures(folder: Path) -> Path:
    """Save a program of convolutions and attention."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    head = [torch.nn.Flatten(2), torch.nn.TransformerEncoderLayer(9, 3, 16, batch_first=True)]
    return _saved(folder, torch.nn.Sequential(*layers, *head), (torch.ones(1, 3, 8, 8),), {}, None)


def _saved(folder: Path, module, args, kwargs, sizes) -> Path:  # type: ignore[no-untyped-def]
    path = folder / "model.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=sizes, strict=False)
        torch.export.save(program, path)
    return path


PROGRAMS: dict[str, Callable[[Path], Path]] = {item.__name__: item for item in (counting, pictures)}
