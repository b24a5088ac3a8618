"""The networks of the benchmark: well-known designs with seeded weights, built as ONNX when they are first needed.

    build("resnet50", batch=8)              # an onnx.ModelProto
    saved("resnet50", folder, batch=8)      # the path of its file, which is written if it is missing

The same name gives the same bytes on every machine, if NumPy generates the same random numbers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import onnx

from .bert import bert_base, bert_small
from .densenet import densenet121
from .inception import inception_v3
from .lstm import lstm
from .mobilenet import efficientnet_lite0, mobilenet_v1, mobilenet_v2, mobilenet_v3
from .quantized import STYLES
from .resnet import resnet50
from .shufflenet import shufflenet_v2
from .squeezenet import squeezenet
from .unet import unet
from .yolo import yolo

__all__ = ["BATCHED", "NETWORKS", "QUANTIZED", "QUICK", "build", "saved"]

NETWORKS: Final[dict[str, Callable[[int], onnx.ModelProto]]] = {
    item.__name__: item
    for item in (mobilenet_v1, mobilenet_v2, mobilenet_v3, efficientnet_lite0, shufflenet_v2, squeezenet, resnet50,
                densenet121, inception_v3, unet, yolo, bert_base, bert_small, lstm)
}  # fmt: skip
QUANTIZED: Final = (mobilenet_v2, mobilenet_v3, resnet50, bert_small)
"""Those that are also measured with integers of 8 bits, with "_qdq" or "_dynamic" after their names."""


def _quantized(make: Callable[[int], onnx.ModelProto], style: str) -> Callable[[int], onnx.ModelProto]:
    return lambda batch: STYLES[style](make(batch))


NETWORKS.update({f"{make.__name__}_{style}": _quantized(make, style) for make in QUANTIZED for style in STYLES})
BATCHED: Final = ("mobilenet_v2", "resnet50", "bert_small", "lstm")
"""Those that are also measured in batches of 8."""
QUICK: Final = ("mobilenet_v2", "squeezenet", "bert_small")
"""Those of a short run."""


def build(name: str, batch: int = 1) -> onnx.ModelProto:
    """Return the network with this name."""
    return NETWORKS[name](batch)


def saved(name: str, folder: Path, batch: int = 1) -> Path:
    """Return the path of the network's file in this folder; files of other versions of the builders are removed."""
    stem = f"{name}-{batch}"
    path = folder / f"{stem}-{_version()}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{stem}-*"):
            old.unlink()
        partial = path.with_suffix(f".{os.getpid()}")
        onnx.save(build(name, batch), partial)
        partial.replace(path)
    return path


@cache
def _version() -> str:
    """Return a hash of the source files of the builders."""
    result = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        result.update(source.read_bytes())
    return result.hexdigest()[:12]
