"""Cases of GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, normal, whole


@dataclass(frozen=True)
class Grouped:
    """A form of GroupQueryAttention.

    `lengths` are the numbers of keys of each sample with the new ones, and `total` is total_sequence_length.
    """

    steps: int
    past: int | None
    lengths: Sequence[int]
    total: int
    heads: int = 4
    groups: int = 2
    size: int = 16
    rotated: int = 0
    packed: bool = False
    positions: Any = None
    bias: tuple[int, ...] = ()
    sink: int = 0
    cache: str = ""
    dtype: Any = np.float32
    attributes: dict[str, Any] = field(default_factory=dict)

    def case(self, label: str, *, constant: bool) -> Case:
        """Return a case; `constant` makes the total length a constant of the file."""
        attributes = {"num_heads": self.heads, "kv_num_heads": self.groups, **self.attributes}
        operands = [*self._sequences(), *self._caches(), fed(np.array(self.lengths) - 1, np.int32)]
        operands.append((fixed if constant else fed)([self.total], np.int32))
        operands += self._tables()
        if self.rotated:
            attributes |= {"do_rotary": 1}
        if self.positions is not None or self.bias or self.sink:
            operands.append(None if self.positions is None else fed(self.positions, np.int64))
        if self.bias:
            operands.append(self._numbers(*self.bias, seed=9))
        if self.sink:
            operands += [*([] if self.bias else [None]), self._numbers(self.sink, seed=10)]
        if self.cache:
            kind, bits = self.cache.split()
            attributes |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": int(bits)}
            count = 1 if kind == "PER_TENSOR" else self.groups * self.size
            operands += [None] * (12 - len(operands))
            operands += [fed(np.linspace(low, 0.4, count), np.float32) for low in (0.3, 0.2)]
        title = f"{label}{', constant length' if constant else ''}"
        results = (self.dtype, *[self._type_of_cache] * 2)
        case = Case("GroupQueryAttention", title, operands, results, attributes, defined=self._defined)
        return replace(case, tolerance=1e-3, steps=1) if self.cache else case

    @property
    def _type_of_cache(self) -> Any:
        return self.dtype if not self.cache else np.int8 if self.cache.endswith("8") else np.uint8

    def _numbers(self, *shape: int, seed: int) -> Operand:
        return fed(normal(shape, self.dtype, seed))

    def _sequences(self) -> list[Operand | None]:
        widths = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        if self.packed:
            return [self._numbers(len(self.lengths), self.steps, sum(widths), seed=0), None, None]
        return [self._numbers(len(self.lengths), self.steps, width, seed=n) for n, width in enumerate(widths)]

    def _caches(self) -> list[Operand | None]:
        if self.past is None:
            return [None, None]
        shape = (len(self.lengths), self.groups, self.past, self.size // (2 if self.cache.endswith("4") else 1))
        if self.cache:
            return [fed(whole(shape, self._type_of_cache, seed)) for seed in (3, 4)]
        return [self._numbers(*shape, seed=seed) for seed in (3, 4)]

    def _tables(self) -> list[Operand | None]:
        if not self.rotated:
            return [None, None] if self.positions is not None or self.bias or self.sink else []
        return [fixed(normal((64, self.rotated // 2), self.dtype, seed)) for seed in (5, 6)]

    def _defined(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the steps of the output that are no padding, and the keys and values that the caches have."""
        steps = self.lengths if self.steps == self.total else [self.steps] * len(self.lengths)
        output, *caches = results
        rows = [sample[:length] for sample, length in zip(output, steps, strict=True)]
        kept = [sample[:, :length] for cache in caches for sample, length in zip(cache, self.lengths, strict=True)]
        return [*rows, *kept]


PHASES = {
    "prompt": Grouped(4, None, [4, 4], 4),
    "prompt with an empty past": Grouped(4, 0, [4, 4], 4),
    "prompt with padding": Grouped(4, 0, [4, 2], 4),
    "prompt into a cache": Grouped(4, 16, [4, 4], 4),
    "prompt with padding into a cache": Grouped(4, 16, [4, 2], 4),
    "step in a cache": Grouped(1, 16, [6, 6], 6),
    "step in a cache at different lengths": Grouped(1, 16, [6, 3], 6),
    "step": Grouped(1, 5, [6, 6], 6),
    "step at different lengths": Grouped(1, 5, [6, 3], 6),
    "steps": Grouped(3, 5, [8], 8),
    "steps in a cache": Grouped(3, 16, [8], 8),
    "steps with the length of the cache": Grouped(3, 16, [8], 16),
    "step that fills a cache": Grouped(1, 16, [16, 16], 16),
}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotated": 16},
    "rotary of pairs": {"rotated": 16, "attributes": {"rotary_interleaved": 1}},
    "rotary of a part": {"rotated": 16, "size": 32},
    "packed": {"packed": True, "rotated": 16},
    "window": {"attributes": {"local_window_size": 2}},
    "window of one": {"attributes": {"local_window_size": 1}},
    "window of none": {"attributes": {"local_window_size": 0}},
    "wide window": {"attributes": {"local_window_size": 100}},
    "cap": {"attributes": {"softcap": 2.0, "scale": 1.5}},
    "negative cap": {"attributes": {"softcap": -2.0, "scale": 0.0}},
    "both directions": {"attributes": {"causal": 0}},
    "as many keys as queries": {"groups": 4},
    "one head": {"heads": 1, "groups": 1},
    "sink": {"sink": 4},
    "sink and window": {"sink": 4, "rotated": 16, "attributes": {"local_window_size": 2}},
    "smooth": {"attributes": {"smooth_softmax": 1}},
    "smooth sink and cap": {"sink": 4, "attributes": {"smooth_softmax": 1, "softcap": 2.0}},
    **{
        f"cache {cache}": {"cache": cache}
        for cache in ("PER_TENSOR 8", "PER_CHANNEL 8", "PER_TENSOR 4", "PER_CHANNEL 4")
    },
    "float16": {"dtype": np.float16, "rotated": 16},
}


def phases() -> Iterator[Case]:
    for phase, grouped in PHASES.items():
        forms = {form: changes for form, changes in FORMS.items() if grouped.past is not None or "cache" not in changes}
        for form, changes in forms.items():
            yield replace(grouped, **changes).case(f"{phase}, {form}", constant=form in {"rotary", "window"})
        batch, keys = len(grouped.lengths), grouped.total
        for shape in ((batch, 1, grouped.steps, keys), (1, 4, grouped.steps, keys)):
            yield replace(grouped, bias=shape).case(f"{phase}, attention_bias {list(shape)}", constant=False)
        ids = (np.arange(batch * grouped.steps).reshape(batch, grouped.steps) * 3 + 2) % 11
        yield replace(grouped, positions=ids, rotated=16).case(f"{phase}, positions", constant=False)
        yield replace(grouped, positions=ids, rotated=16).case(f"{phase}, positions", constant=True)
    for phase in ("prompt", "step in a cache at different lengths", "steps"):
        yield replace(PHASES[phase].case(f"{phase}, dynamic", constant=False), dynamic=True)
        yield replace(PHASES[phase].case(f"{phase}, dynamic", constant=True), dynamic=True)


def refusals() -> Iterator[Case]:
    step, prompt = PHASES["step in a cache"], PHASES["prompt"]
    wrong = {
        "a length beyond the cache": replace(step, lengths=[18, 3]),
        "a length below the steps": Grouped(4, 16, [3], 16),
        "a total between": Grouped(1, 4, [6, 3], 9),
        "several steps of a batch": Grouped(2, 16, [6, 3], 6),
        "heads that do not divide": replace(step, heads=3),
        "a window in both directions": replace(prompt, attributes={"causal": 0, "local_window_size": 2}),
        "causal 2": replace(prompt, attributes={"causal": 2}),
        "an attention_bias for the whole cache": replace(step, bias=(1, 4, 1, 16)),
        "a sink for other heads": replace(step, sink=3),
        "rotary without caches": replace(step, attributes={"do_rotary": 1}),
    }
    for title, grouped in wrong.items():
        yield grouped.case(title, constant=True)
    others = replace(step, positions=[[1, 2], [3, 4]], rotated=16).case("positions of other steps", constant=True)
    yield replace(others, refused=True)


CASES = [*phases(), *refusals()]
