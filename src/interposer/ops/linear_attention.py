"""Linear attention, whose cost is linear in the sequence length: keys and values update a state that queries read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import DataType, TensorInfo, TensorShape, differ
from interposer.ops.attention import with_heads
from interposer.ops.named_sizes import Infos, by_name, dimension_problems, shape_of, sizes_by_letter

__all__ = ["LinearAttention"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)
_AXIS_LETTERS: Final = {"query": "BHTD", "key": "BGTD", "value": "BGTE", "past_state": "BGDE"}


@op
class LinearAttention(Op):
    """Linear attention: process a sequence step by step with a state matrix S for each head.

    Here q, k, v are the rows of query, key and value at one step, and d, b those of decay and beta::

        S = exp(d) * S          # with decay: one factor for every row of S, or one for all of S
        v = b * (v - k S)       # with beta: write only the difference from the current state
        S = S + k^T v
        output = scale * q S

    Each of the G heads of the state serves H / G consecutive heads of the query.

    Shapes:
        query: (B, T, H * D), with ``q_num_heads`` H
        key: (B, T, G * D), with ``kv_num_heads`` G
        value: (B, T, G * E)
        past_state, present_state: (B, G, D, E); zeros where the past one is absent
        decay: (B, T, G), or (B, T, G * D) with one for each row of the state
        beta: (B, T, G), or (B, T, 1)
        output: (B, T, H * E)

    Example:
        >>> op = LinearAttention(q_num_heads=1, kv_num_heads=1, scale=1.0)
        >>> ones, values = [[[1.0], [1.0]]], [[[2.0], [3.0]]]
        >>> output, state = compute(op, ones, ones, values)
        >>> output.tolist(), state.tolist()
        ([[[2.0], [5.0]]], [[[[5.0]]]])
        >>> compute(op, ones, ones, values, beta=ones)[0].tolist()
        [[[2.0], [3.0]]]

    Source:
        ONNX LinearAttention-27; its ``update_rule`` says which of decay and beta there are.
    """

    query = operand(rank=3, dtypes=_FLOATS)
    key = operand(rank=3, dtypes=_FLOATS)
    value = operand(rank=3, dtypes=_FLOATS)
    past_state = operand(rank=4, dtypes=_FLOATS, optional=True)
    decay = operand(
        role=Role.PARAMETER,
        rank=3,
        dtypes=_FLOATS,
        optional=True,
        doc="Logarithm of the factor by which the state decays.",
    )
    beta = operand(role=Role.PARAMETER, rank=3, dtypes=_FLOATS, optional=True, doc="Factor on the update of the state.")
    output = result(rank=3, dtype_of="query")
    present_state = result(rank=4, dtypes=_FLOATS)

    q_num_heads: int = attribute(ge=1, doc="Number of heads of the query.")
    kv_num_heads: int = attribute(ge=1, doc="Number of heads of key and value.")
    scale: float | None = attribute(default=None, doc="Factor that multiplies the output; None means 1 / sqrt(D).")

    def check(self, *operands: Any) -> Iterator[str]:
        infos = by_name(self, operands)
        errors = list(self._head_problems(infos))
        yield from errors
        if not errors:
            split_infos = with_heads(infos, self.q_num_heads, self.kv_num_heads)
            yield from dimension_problems(split_infos, _AXIS_LETTERS)
            yield from self._gate_problems(infos, sizes_by_letter(split_infos, _AXIS_LETTERS))

    def _head_problems(self, infos: Infos) -> Iterator[str]:
        if self.q_num_heads % self.kv_num_heads:
            yield f"q_num_heads is {self.q_num_heads}; expected a multiple of kv_num_heads, {self.kv_num_heads}"
        for name, heads in (("query", self.q_num_heads), ("key", self.kv_num_heads), ("value", self.kv_num_heads)):
            info = infos[name]
            if info is not None and info.shape[2] % heads:
                yield f"{name} has shape {info.shape}, whose last dimension cannot be divided among {heads} heads"

    def _gate_problems(self, infos: Infos, sizes: dict[str, int]) -> Iterator[str]:
        heads, steps = self.kv_num_heads, TensorShape((sizes["B"], sizes["T"]))
        for name, widths in (("decay", (heads, heads * sizes["D"])), ("beta", (heads, 1))):
            info = infos[name]
            if info is None:
                continue
            is_wrong_width = all(differ(info.shape[2], width) for width in widths)
            if is_wrong_width or not steps.accepts(TensorShape(info.shape[:2])):
                expected = " or ".join(str(TensorShape((*steps, width))) for width in dict.fromkeys(widths))
                yield f"{name} has shape {info.shape}; expected {expected}"

    def infer(self, *operands: Any) -> tuple[TensorInfo, TensorInfo]:
        infos = by_name(self, operands)
        sizes = sizes_by_letter(with_heads(infos, self.q_num_heads, self.kv_num_heads), _AXIS_LETTERS)
        query, past_state = operands[0], infos["past_state"]
        output = TensorShape((sizes["B"], sizes["T"], self.q_num_heads * sizes["E"]))
        state = shape_of("BGDE", sizes | {"G": self.kv_num_heads})
        return TensorInfo(output, query.dtype), TensorInfo(state, past_state.dtype if past_state else query.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        steps, state = outputs[0].shape[0] * outputs[0].shape[1], outputs[1].shape
        products = 2 * state[2] * state[3]
        return steps * products * (self.q_num_heads + 3 * self.kv_num_heads)
