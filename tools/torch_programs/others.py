"""Networks for sound and series, plain modules, and programs with states, branches and unusual operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as nf

from tools.torch_programs.program import Call, Program, built, ids, images, program, sound


def _transformers(family: str, config: dict[str, Any], suffix: str = "Model") -> Any:
    import transformers

    return getattr(transformers, f"{family}{suffix}")(getattr(transformers, f"{family}Config")(**config))


def _plain(*first: int, other: tuple[int, ...]) -> tuple[Callable[[int], Call], Callable[[int], Call]]:
    return lambda seed: Call((images(seed, first),)), lambda seed: Call((images(seed, other),))


# --- sound and series -------------------------------------------------------------------------------------------------

_WAVE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32,
    "conv_dim": [16, 16], "conv_stride": [4, 4], "conv_kernel": [8, 8], "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2,
}  # fmt: skip
for _name, _family in (("wav2vec2", "Wav2Vec2"), ("hubert", "Hubert"), ("wavlm", "WavLM")):
    program(_name)(lambda family=_family: built(_transformers(family, _WAVE), *_plain(2, 400, other=(3, 480))))

_WHISPER = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 8,
    "max_source_positions": 20, "max_target_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip


@program("whisper")
def whisper() -> Program:
    """Return the program of Whisper, encoder and decoder."""

    def call(seed: int, batch: int) -> Call:
        values = {"input_features": sound(seed, (batch, 8, 40)), "decoder_input_ids": ids(seed, (batch, 5))}
        return Call((), values)

    return built(_transformers("Whisper", _WHISPER), lambda seed: call(seed, 2), lambda seed: call(seed, 3))


@program("ast")
def audio_spectrogram() -> Program:
    """Return the program of the audio spectrogram transformer."""
    config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = _transformers("AST", config | {"patch_size": 4, "max_length": 24, "num_mel_bins": 16, "frequency_stride": 4,
                                           "time_stride": 4})  # fmt: skip
    return built(model, *_plain(2, 24, 16, other=(3, 24, 16)))


_PATCHES = {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16}


@program("patchtst")
def patchtst() -> Program:
    """Return the program of PatchTST."""
    config = _PATCHES | {"num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32, "stride": 4}
    return built(_transformers("PatchTST", config), *_plain(2, 16, 2, other=(3, 16, 2)))


@program("patchtsmixer")
def patchtsmixer() -> Program:
    """Return the program of PatchTSMixer."""
    return built(_transformers("PatchTSMixer", _PATCHES | {"num_layers": 2}), *_plain(2, 16, 2, other=(3, 16, 2)))


# --- plain modules ----------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A recurrent layer, followed by a linear one on the last step."""

    def __init__(self, kind: type, **options: Any) -> None:
        super().__init__()
        self.layer = kind(8, 12, batch_first=True, **options)
        width = 12 * (2 if options.get("bidirectional") else 1)
        self.head = nn.Linear(options.get("proj_size") or width, 3)

    def forward(self, x):  # type: ignore[no-untyped-def] # as modules are written
        """Return the scores of three classes."""
        return self.head(self.layer(x)[0][:, -1])


for _name, _kind, _options in (
    ("lstm", nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    ("gru", nn.GRU, {"num_layers": 2}),
    ("rnn", nn.RNN, {}),
):
    program(_name)(
        lambda kind=_kind, options=_options: built(Recurrent(kind, **options), *_plain(2, 9, 8, other=(3, 6, 8)))
    )


class Cells(nn.Module):
    """Cells of recurrent layers in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(6, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the last hidden state of each cell."""
        h, c = self.lstm(x[0])
        g, r = self.gru(x[0]), self.rnn(x[0])
        for step in x[1:].unbind(0):
            h, c = self.lstm(step, (h, c))
            g, r = self.gru(step, g), self.rnn(step, r)
        return h, c, g, r


program("cells")(lambda: built(Cells(), *_plain(4, 2, 6, other=(4, 3, 6))))
program("mlp")(
    lambda: built(
        nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Softmax(-1)),
        *_plain(2, 8, other=(5, 8)),
    )
)
program("transformer_encoder")(
    lambda: built(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False),
        *_plain(2, 7, 16, other=(3, 5, 16)),
    )
)


@program("transformer")
def transformer() -> Program:
    """A whole transformer with a causal mask."""
    module = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)

    def call(seed: int, batch: int) -> Call:
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        return Call(
            (images(seed, (batch, 7, 16)), images(seed + 9, (batch, 5, 16))), {"tgt_mask": mask, "tgt_is_causal": True}
        )

    return built(module, lambda seed: call(seed, 2), lambda seed: call(seed, 3))


class UNet(nn.Module):
    """A small U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return two scores for each pixel."""
        first = nf.leaky_relu(self.down1(x), 0.1)
        second = nf.silu(self.norm(self.down2(nf.max_pool2d(first, 2))))
        return self.out(torch.cat([first, self.up(second)], 1))


program("unet")(lambda: built(UNet(), *_plain(2, 3, 16, 16, other=(3, 3, 24, 20))))
program("conv3d")(
    lambda: built(
        nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(2)),
        *_plain(2, 2, 6, 6, 6, other=(3, 2, 6, 6, 6)),
    )
)
program("conv1d")(
    lambda: built(
        nn.Sequential(nn.Conv1d(4, 8, 3, dilation=2), nn.Mish(), nn.InstanceNorm1d(8, affine=True), nn.AvgPool1d(3, 2)),
        *_plain(2, 4, 20, other=(3, 4, 31)),
    )
)


class Function(nn.Module):
    """A function as a module without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):  # type: ignore[no-untyped-def]
        """Return what the function returns."""
        return self.function(*args)


def _function(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        program(name)(lambda: built(Function(function), *_plain(*shape, other=other)))
        return function

    return register


@_function("samplers", (2, 3, 8, 8), (3, 3, 8, 8))
def samplers(x):  # type: ignore[no-untyped-def]
    """Resize in four ways, and sample on a grid."""
    grid = nf.affine_grid(torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.9, 0.1]]]).expand(x.shape[0], 2, 3), x.shape, False)
    return (
        nf.interpolate(x, scale_factor=2, mode="bilinear"), nf.interpolate(x, size=(5, 11), mode="bicubic"),
        nf.interpolate(x, scale_factor=1.5, mode="nearest"), nf.grid_sample(x, grid, align_corners=False),
    )  # fmt: skip


@_function("indexing", (4, 6), (5, 6))
def indexing(x):  # type: ignore[no-untyped-def]
    """Index, gather, scatter and sort."""
    order = torch.argsort(x, dim=1)
    rows = torch.tensor([2, 0, 1])
    y = x.clone()
    y[rows] = x[rows] * 2
    y[:, 1::2] += 1
    sums = torch.zeros(x.shape[0], 6).scatter_add(1, order, x)
    return y, x[:, rows], x.gather(1, order), sums, torch.topk(x, 3).values, x.flip(0).roll(1, 1), x.tril(1)


@_function("reductions", (3, 4, 5), (2, 4, 5))
def reductions(x):  # type: ignore[no-untyped-def]
    """Reduce in many ways."""
    return (
        x.mean(0), x.std(1), x.var((0, 2), correction=0), x.amax(1), x.max(2), x.norm(dim=1), x.logsumexp(2), x.prod(1),
        x.cumsum(1), (x > 0).sum(), x.argmax(1), (x > 5).any(1), x.median(1).values,
    )  # fmt: skip


@_function("arithmetic", (3, 4), (5, 4))
def arithmetic(x):  # type: ignore[no-untyped-def]
    """Combine types: numbers, integers, booleans and half precision."""
    i = (x * 10).to(torch.int32)
    return (
        i // 3, i % 3, torch.remainder(x, 0.7), torch.fmod(x, 0.7), x.to(torch.float16) + 1.5, i + 1.5, i / 2, x > i,
        (i > 0) & (i < 5), torch.where(i > 0, x, i), x.clamp(-0.5, 0.5), x.pow(2) - x.abs().sqrt(), i ** 2,
        torch.atan2(x, x + 1), x.round(decimals=1), torch.floor_divide(i, 2),
    )  # fmt: skip


@_function("fft", (2, 16), (3, 16))
def fft(x):  # type: ignore[no-untyped-def]
    """Transform to frequencies and back."""
    y = torch.fft.rfft(x)
    return (
        y.abs(),
        torch.fft.irfft(y * 2, n=16),
        torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).real,
    )


@_function("einsum", (2, 3, 4), (5, 3, 4))
def einsum(x):  # type: ignore[no-untyped-def]
    """Multiply by the names of indices."""
    return torch.einsum("bij,bkj->bik", x, x), torch.einsum("bij->ji", x), torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5)


@_function("attention", (2, 4, 5, 8), (3, 4, 7, 8))
def attention(x):  # type: ignore[no-untyped-def]
    """Attention that is causal, masked and plain."""
    mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool).tril()
    return (
        nf.scaled_dot_product_attention(x, x, x, is_causal=True),
        nf.scaled_dot_product_attention(x, x, x, attn_mask=mask),
        nf.scaled_dot_product_attention(x, x[:, :2], x[:, :2], scale=0.3, enable_gqa=True),
    )  # fmt: skip


@_function("windows", (2, 2, 6, 6), (3, 2, 6, 6))
def windows(x):  # type: ignore[no-untyped-def]
    """Unfold, fold, pad, shuffle and pool."""
    columns = nf.unfold(x, 3, padding=1)
    return (
        columns, nf.fold(columns, (6, 6), 3, padding=1), nf.pad(x, (1, 2, 0, 1), mode="reflect"),
        nf.pixel_unshuffle(x, 2),
        nf.adaptive_avg_pool2d(x, 4), nf.adaptive_max_pool2d(x, 3), nf.avg_pool2d(x, 3, 2, ceil_mode=True),
        nf.lp_pool2d(x, 2, 2),
    )  # fmt: skip


@_function("dynamic", (4, 5), (6, 5))
def dynamic(x):  # type: ignore[no-untyped-def]
    """Results whose sizes depend on data."""
    return x.nonzero(), x[x > 0], torch.masked_select(x, x < 0)


@_function("structures", (3, 4), (2, 4))
def structures(x):  # type: ignore[no-untyped-def]
    """Nested results with numbers, None, one value twice, and views."""
    y = x + 1
    return {"views": (y.t(), y[0], y.view(-1)), "twice": [y, y], "none": None, "size": x.shape[0] * 2, "input": x}


@_function("in_place", (3, 4), (5, 4))
def in_place(x):  # type: ignore[no-untyped-def]
    """Write to views of the input and of a new tensor."""
    y = torch.zeros(x.shape[0], 4)
    y[:, 0] = x[:, 1]
    y.t()[1].add_(2)
    x[0].mul_(3)
    x.view(-1)[-2:].zero_()
    return y, x.sum()


class Branch(nn.Module):
    """A branch that depends on data, as a region."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Run one of two layers."""
        return torch.cond(x.sum() > 0, self.a, self.b, (x,))


program("cond")(
    lambda: built(
        Branch(),
        lambda s: Call((images(s, (3, 4)) + (3 if s == 1 else -3),)),
        lambda s: Call((images(s, (5, 4)),)),
    )
)


class Counter(nn.Module):
    """Counts its calls in a buffer, and keeps an average."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(4), persistent=False)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the input times the number of calls, and the average."""
        self.calls += 1
        self.average.mul_(0.9).add_(x.mean(0) * 0.1)
        return x * self.calls, self.average.clone()


program("counter")(lambda: built(Counter(), *_plain(3, 4, other=(5, 4))))


class Cache(nn.Module):
    """Attention with keys and values in buffers, one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(2, 16, 8))
        self.register_buffer("values", torch.zeros(2, 16, 8))

    def forward(self, x, position):  # type: ignore[no-untyped-def]
        """Return the result of a step at a position, which is a tensor of one integer."""
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        mask = (torch.arange(16) <= position)[None, None]
        return self.out(nf.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask))


program("cache")(lambda: built(Cache(), lambda seed: Call((images(seed, (2, 1, 8)), torch.tensor([seed])))))


class Slots(nn.Module):
    """Writes to slices of a buffer, and returns views of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slots", torch.zeros(4, 6))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Shift the slots by one, and write the mean of the input to the first."""
        self.slots[1:] = self.slots[:-1].clone()
        self.slots[0] = x.mean(0)
        return self.slots.clone(), self.slots[:2].sum(0)


program("slots")(lambda: built(Slots(), *_plain(3, 6, other=(5, 6))))


class Tied(nn.Module):
    """An embedding whose weights are those of the last layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8, padding_idx=0), nn.Linear(8, 50)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):  # type: ignore[no-untyped-def]
        """Return scores of tokens."""
        return self.head(torch.tanh(self.embedding(tokens)))


program("tied")(lambda: built(Tied(), lambda s: Call((ids(s, (2, 5), 50),)), lambda s: Call((ids(s, (3, 7), 50),))))


class Numbers(nn.Module):
    """Keyword arguments, nested inputs, and numbers of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, pair, *, scale=2.0, mask=None):  # type: ignore[no-untyped-def]
        """Return the layer's result."""
        a, b = pair["a"], pair["b"][0]
        y = self.layer(a) * scale + b
        return y if mask is None else y.masked_fill(mask, -1.0)


@program("nested")
def nested() -> Program:
    """Return a program that takes nested inputs and keywords."""

    def call(seed: int, rows: int) -> Call:
        a, b = images(seed, (rows, 4)), images(seed + 5, (rows, 4))
        return Call(({"a": a, "b": [b]},), {"mask": b > 0, "scale": 3.0})

    return built(Numbers(), lambda seed: call(seed, 3), lambda seed: call(seed, 6))


program("bfloat16")(
    lambda: built(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(torch.bfloat16),
        lambda s: Call((images(s, (3, 8)).bfloat16(),)),
        lambda s: Call((images(s, (5, 8)).bfloat16(),)),
    )
)
program("float16")(
    lambda: built(
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)).half(),
        lambda s: Call((images(s, (3, 2, 4, 4)).half(),)),
        lambda s: Call((images(s, (5, 2, 4, 4)).half(),)),
    )
)


class Positions(nn.Module):
    """Sinusoidal positions of the length of the input, by symbolic arithmetic."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Add positions, and split the sequence in the middle."""
        length, width = x.shape[1], x.shape[2]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        angles = torch.arange(length)[:, None] * rate
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        y = x + table
        return y[:, : length // 2], nf.pad(y, (0, 0, 0, length % 3)), y.reshape(x.shape[0], -1)


program("positions")(lambda: built(Positions(), *_plain(2, 8, 6, other=(3, 10, 6))))


class WeightNorm(nn.Module):
    """Layers with weight normalization and spectral tricks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the sum of a layer's and a bag's results."""
        tokens = (x.abs() * 5).long().clamp(0, 19)
        return self.layer(x) + self.bag(tokens), nf.cosine_similarity(x, x + 1), torch.cdist(x, x + 1)


program("weight_norm")(lambda: built(WeightNorm(), *_plain(3, 6, other=(4, 6))))


@program("pt2e_int8")
def pt2e_int8() -> Program:
    """Return the program of a network that torchao has quantized to int8, as PT2E does."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
    example = images(0, (2, 3, 8, 8))
    captured = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(captured, quantizer)
    for seed in range(4):
        prepared(images(seed, (2, 3, 8, 8)))
    first, other = _plain(2, 3, 8, 8, other=(3, 3, 8, 8))
    return Program(convert_pt2e(prepared), (first(1), first(2), other(3)))
