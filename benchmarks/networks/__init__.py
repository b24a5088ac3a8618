"""The networks of the benchmark: well-known designs with seeded weights, built as ONNX when they are first needed.

    build("resnet50", batch=8)              # an onnx.ModelProto
    saved("resnet50", folder, batch=8)      # the path of its file, which is written if it is missing

The same name gives the same bytes on every machine, if NumPy generates the same random numbers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import onnx

from . import audio, convnext, detectors, encoders, mobile, recommendation, recurrent, segmentation, tiny, video, vision
from .decoders import decoder
from .densenet import densenet121
from .inception import inception_v3
from .quantized import STYLES
from .residual import residual
from .shufflenet import shufflenet_v2
from .squeezenet import squeezenet

__all__ = ["BATCHED", "NETWORKS", "QUICK", "Recipe", "build", "saved"]

QDQ: Final = ("qdq",)
DYNAMIC: Final = ("dynamic",)
BOTH: Final = (*QDQ, *DYNAMIC)
Make = Callable[[int], onnx.ModelProto]


@dataclass(frozen=True)
class Recipe:
    """How a network is built, and whether it is also measured in batches of 8.

    `kind` is the group whose mean the network counts in: `float`, `qdq`, `dynamic`, `decoders` or `tiny`.
    """

    make: Make
    kind: str = "float"
    batched: bool = False


@dataclass(frozen=True)
class Row:
    """A network in float32 and in styles of quantization; `batched` lists those with batches of 8.

    `kind` is that of all of them; if it is empty, the style is the kind.
    """

    make: Make
    styles: Sequence[str] = ()
    batched: Sequence[str] = ()
    kind: str = ""
    name: str = ""

    def recipes(self) -> Iterator[tuple[str, Recipe]]:
        """Yield all networks of the row."""
        name = self.name or self.make.__name__  # type: ignore[attr-defined]
        yield name, Recipe(self.make, self.kind or "float", "float" in self.batched)
        for style in self.styles:
            quantized = partial(_quantized, self.make, style)
            yield f"{name}_{style}", Recipe(quantized, self.kind or style, style in self.batched)


def _quantized(make: Make, style: str, batch: int) -> onnx.ModelProto:
    return STYLES[style](make(batch))


def _residual(name: str, styles: Sequence[str], batched: Sequence[str] = ()) -> Row:
    return Row(partial(residual, name), styles, batched, name=name)


def _decoder(name: str, batched: Sequence[str] = ("float",)) -> Row:
    return Row(partial(decoder, name), batched=batched, kind="decoders", name=name)


TABLE: Final = (
    Row(mobile.mobilenet_v1),
    Row(mobile.mobilenet_v2, BOTH, ["float", "qdq"]),
    Row(mobile.mobilenet_v3, BOTH),
    Row(mobile.mobilenet_v4, QDQ),
    Row(mobile.efficientnet_lite0),
    Row(mobile.efficientnet_b0, QDQ, ["float"]),
    Row(shufflenet_v2),
    Row(squeezenet),
    _residual("resnet18", QDQ),
    _residual("resnet50", BOTH, ["float", "qdq"]),
    _residual("resnext50", QDQ),
    _residual("regnet_y_400mf", QDQ),
    Row(densenet121, QDQ),
    Row(inception_v3),
    Row(convnext.vgg11),
    Row(convnext.convnext, DYNAMIC, ["float"]),
    Row(detectors.yolo, QDQ),
    Row(detectors.ssd_mobilenet, QDQ),
    Row(detectors.retinanet),
    Row(segmentation.deeplab),
    Row(segmentation.deeplab_mobilenet, QDQ),
    Row(segmentation.unet, QDQ),
    Row(segmentation.unet_diffusion),
    Row(vision.vit, BOTH, ["float"]),
    Row(vision.swin, DYNAMIC),
    Row(vision.maxvit),
    Row(vision.clip_image),
    Row(vision.clip_text, DYNAMIC),
    Row(encoders.bert_base),
    Row(encoders.bert_small, BOTH, ["float", "dynamic"]),
    Row(encoders.distilbert, BOTH),
    Row(audio.whisper_encoder, DYNAMIC),
    Row(audio.wav2vec, DYNAMIC),
    Row(video.r3d),
    Row(video.x3d),
    Row(recommendation.dlrm, DYNAMIC, ["float"]),
    Row(recurrent.lstm, batched=["float"]),
    Row(recurrent.gru, batched=["float"]),
    *(_decoder(f"{name}_{stage}{form}") for name in ("gpt", "llama") for stage in ("prefill", "step")
      for form in ("", "_int4")),
    _decoder("whisper_step", ()),
    *(Row(make, QDQ, kind="tiny") for make in (tiny.tiny_autoencoder, tiny.tiny_keywords, tiny.tiny_resnet,
                                               tiny.tiny_mobilenet)),
)  # fmt: skip
NETWORKS: Final = dict(recipe for row in TABLE for recipe in row.recipes())
BATCHED: Final = tuple(name for name, recipe in NETWORKS.items() if recipe.batched)
"""Those that are also measured in batches of 8."""
QUICK: Final = ("mobilenet_v2", "mobilenet_v2_qdq", "bert_small", "bert_small_dynamic", "gpt_step", "tiny_keywords")
"""Those of a short run: at least one of each kind."""


def build(name: str, batch: int = 1) -> onnx.ModelProto:
    """Return the network with this name."""
    return NETWORKS[name].make(batch)


def saved(name: str, folder: Path, batch: int = 1) -> Path:
    """Return the path of the network's file in this folder; files of other versions of the builders are removed."""
    stem = f"{name}-{batch}"
    path = folder / f"{stem}-{_version()}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{stem}-*"):
            old.unlink()
        partial_file = path.with_suffix(f".{os.getpid()}")
        onnx.save(build(name, batch), partial_file)
        partial_file.replace(path)
    return path


@cache
def _version() -> str:
    """Return a hash of the source files of the builders; the table of names does not change a network."""
    digest = hashlib.sha256()
    for source in sorted({*Path(__file__).parent.glob("*.py")} - {Path(__file__)}):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
