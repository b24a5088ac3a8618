"""Programs of PyTorch with random weights: ten of full size, and small ones of `tools/torch_programs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

__all__ = ["LARGE", "SMALL", "Program", "program"]


@dataclass(frozen=True)
class Program:
    """A module in evaluation mode, and the arguments of its calls."""

    module: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


SMALL: Final = (
    "mlp", "transformer_encoder", "lstm", "unet", "bert", "distilbert", "gpt2", "llama", "t5_encoder", "vit", "resnet",
    "mobilenet_v2", "convnext", "segformer", "whisper_encoder",
)  # fmt: skip
"""Names of programs of `tools/torch_programs`, which have two or three narrow layers."""


def program(name: str) -> Program:
    """Return a program by its name; most of those of full size need the package transformers.

    Raises:
        ImportError: a package is missing.
        KeyError: there is no such program.
    """
    torch.manual_seed(0)
    if name in LARGE:
        return LARGE[name]()
    from tools.torch_programs import others, text, vision  # noqa: F401, PLC0415 - they register programs
    from tools.torch_programs.program import PROGRAMS  # noqa: PLC0415

    small = PROGRAMS["whisper" if name == "whisper_encoder" else name]()
    call = small.calls[0]
    if name == "whisper_encoder":
        return Program(small.module.get_encoder(), (call.kwargs["input_features"],))
    return Program(small.module, call.args, call.kwargs)


def _transformers(family: str, **config: Any) -> Any:
    import transformers  # noqa: PLC0415 - only programs of full size need it

    settings = getattr(transformers, f"{family}Config")(**config)
    return getattr(transformers, f"{family}Model")(settings).eval()


def _image(size: int = 224, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def _tokens(length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(5, vocabulary, (1, length))


class _Whisper(nn.Module):
    """The encoder of Whisper with the sizes of "tiny"."""

    def __init__(self) -> None:
        super().__init__()
        whole = _transformers("Whisper", d_model=384, encoder_layers=4, decoder_layers=1, encoder_attention_heads=6,
                              decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)  # fmt: skip
        self.encoder = whole.get_encoder()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the states of the last layer for log-mel features (batch, 80, 3000)."""
        hidden_states: torch.Tensor = self.encoder(features).last_hidden_state
        return hidden_states


class _Lstm(nn.Module):
    """A classifier of sequences with an LSTM of two layers in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 512, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(1024, 100)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return scores (batch, 100) of sequences (batch, length, 256)."""
        states, _ = self.lstm(sequence)
        logits: torch.Tensor = self.head(states[:, -1])
        return logits


def _double(inputs: int, outputs: int) -> nn.Module:
    steps = [(inputs, outputs), (outputs, outputs)]
    layers = [(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()) for i, o in steps]
    return nn.Sequential(*(layer for group in layers for layer in group))


class _UNet(nn.Module):
    """A U-Net with four levels and 32 to 256 channels."""

    def __init__(self) -> None:
        super().__init__()
        widths = (32, 64, 128, 256)
        self.down = nn.ModuleList(_double(*pair) for pair in zip((3, *widths), widths, strict=False))
        pairs = [(widths[i + 1], widths[i]) for i in reversed(range(len(widths) - 1))]
        self.raise_ = nn.ModuleList(nn.ConvTranspose2d(*pair, 2, stride=2) for pair in pairs)
        self.up = nn.ModuleList(_double(2 * low, low) for _, low in pairs)
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return two scores for each pixel of images (batch, 3, height, width) whose sides are multiples of 8."""
        levels = []
        x = image
        for index, level in enumerate(self.down):
            x = level(nn.functional.max_pool2d(x, 2) if index else x)
            levels.append(x)
        for rise, level, other in zip(self.raise_, self.up, reversed(levels[:-1]), strict=True):
            x = level(torch.cat([rise(x), other], 1))
        logits: torch.Tensor = self.head(x)
        return logits


LARGE: Final[Mapping[str, Callable[[], Program]]] = {
    "resnet50": lambda: Program(_transformers("ResNet"), (_image(),)),
    "mobilenet_v2_large": lambda: Program(_transformers("MobileNetV2"), (_image(),)),
    "convnext_tiny": lambda: Program(_transformers("ConvNext"), (_image(),)),
    "vit_base_16": lambda: Program(_transformers("ViT"), (_image(),)),
    "bert_base": lambda: Program(_transformers("Bert"), (), {"input_ids": _tokens(128, 30000)}),
    "gpt2_small": lambda: Program(_transformers("GPT2", use_cache=False), (), {"input_ids": _tokens(128, 50000)}),
    "llama_100m": lambda: Program(
        _transformers("Llama", hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                      num_key_value_heads=4, use_cache=False), (), {"input_ids": _tokens(128, 30000)},
    ),
    "whisper_tiny_encoder": lambda: Program(_Whisper().eval(), (torch.randn(1, 80, 3000),)),
    "lstm_large": lambda: Program(_Lstm().eval(), (torch.randn(1, 100, 256),)),
    "unet_large": lambda: Program(_UNet().eval(), (_image(256),)),
}  # fmt: skip
"""Programs of full size by name; they are built in the call."""
