"""Random number generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, differ

__all__ = ["BitGenerator", "Distribution", "RandomBits", "RandomFill", "RandomGenerator"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)
_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)
_WORD_TYPES: Final = (DataType.UINT32, DataType.UINT64, DataType.INT32, DataType.INT64)


class Distribution(Enum):
    """The probability distribution of `RandomFill`."""

    UNIFORM = "uniform"
    """Uniform distribution between `a` (inclusive) and `b` (exclusive)."""
    NORMAL = "normal"
    """Normal distribution with mean `a` and standard deviation `b`."""


class RandomGenerator(Enum):
    """The generator of pseudorandom numbers that `RandomFill` uses if it has a seed."""

    MERSENNE_TWISTER = "mersenne_twister"
    """NumPy's ``RandomState``; the seed has 32 bits."""
    PHILOX = "philox"
    """TensorFlow's Philox generator, which has two seeds of 64 bits; numbers have the precision of float32."""


class BitGenerator(Enum):
    """The counter-based generator that `RandomBits` uses."""

    THREEFRY = "threefry"
    """Threefry 2x32 with 20 rounds."""
    PHILOX = "philox"
    """Philox 4x32 with 10 rounds."""


@op(pure=False, traits=Trait.RANDOM)
class RandomFill(Op):
    """A tensor of random numbers; an operand holds the tensor's shape.

    The same seed gives the same numbers in every run on the same backend. Without a seed, every run gives different
    numbers.

    Shapes:
        dims: (R,)
        output: the dimensions in ``dims``

    Example:
        >>> numbers = compute(RandomFill(seed=7), [2, 3])
        >>> bool(np.all((0 <= numbers) & (numbers < 1))), numbers.shape
        (True, (2, 3))
        >>> compute(RandomFill(Distribution.NORMAL, a=5.0, b=0.0), [2]).tolist()
        [5.0, 5.0]

    Source:
        ONNX RandomUniform-22, RandomNormal-22 (whose reference evaluator draws the same numbers for a seed);
        TFLite RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL.
    """

    dims = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(dtypes=_FLOATS, dynamic=True)

    distribution: Distribution = attribute(default=Distribution.UNIFORM, doc="The probability distribution.")
    a: float = attribute(default=0.0, doc="Lower bound (inclusive), or mean.")
    b: float = attribute(default=1.0, doc="Upper bound (exclusive), or standard deviation.")
    seed: int | None = attribute(default=None, doc="The seed; None means a different one in every run.")
    dtype: DataType = attribute(default=DataType.FLOAT32, choices=_FLOATS, doc="The type of the result.")
    generator: RandomGenerator = attribute(
        default=RandomGenerator.MERSENNE_TWISTER, doc="The generator of numbers if there is a seed."
    )
    seed2: int = attribute(default=0, doc="The second seed of the Philox generator.")

    def check(self, dims: TensorInfo) -> Iterator[str]:
        has_two_seeds = self.generator is RandomGenerator.PHILOX
        if self.seed is not None and not has_two_seeds and not 0 <= self.seed < 2**32:
            yield f"seed is {self.seed}; expected 0 to {2**32 - 1}"
        if dims.shape[0] > MAX_RANK:
            yield f"dims has {dims.shape[0]} dimensions; ranks 0 to {MAX_RANK} are supported"
        elif isinstance(dims.shape[0], Dim):
            yield "the number of dimensions in dims is not known"
        elif dims.constant is not None and (dims.constant < 0).any():
            yield f"dims is {dims.constant.tolist()}; a dimension must not be negative"

    def infer(self, dims: TensorInfo) -> TensorInfo:
        if dims.constant is not None:
            return TensorInfo(dims.constant.tolist(), self.dtype)
        return TensorInfo([UNKNOWN] * dims.shape[0], self.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 16 * int(outputs[0].num_elements)


@op
class RandomBits(Op):
    """A tensor of random bits, and the state that gives the following bits.

    The state is a key of 64 bits, and a counter of 64 bits (two numbers) or of 128 bits (three numbers, for Philox
    only). Each block of words is the generator's result for one value of the counter.

    Shapes:
        state: (2,) or (3,)
        next_state: like the state
        output: ``shape``

    Example:
        >>> state, bits = compute(RandomBits(shape=(2,)), np.uint64([1, 2]))
        >>> state.tolist()
        [1, 3]
        >>> _, same = compute(RandomBits(shape=(2,)), np.uint64([1, 2]))
        >>> bits.tolist() == same.tolist()
        True

    Source:
        StableHLO rng_bit_generator; TFLite STABLEHLO_RNG_BIT_GENERATOR.
    """

    state = operand(rank=1, dtypes=[DataType.UINT64])
    next_state = result(like="state")
    output = result(dtypes=_WORD_TYPES)

    shape: tuple[int, ...] = attribute(ge=0, doc="The shape of the result.")
    generator: BitGenerator = attribute(default=BitGenerator.THREEFRY, doc="The generator.")
    dtype: DataType = attribute(default=DataType.UINT32, choices=_WORD_TYPES, doc="The type of the result.")

    def check(self, state: TensorInfo) -> Iterator[str]:
        sizes = (2,) if self.generator is BitGenerator.THREEFRY else (2, 3)
        if all(differ(state.shape[0], size) for size in sizes):
            yield f"state has {state.shape[0]} elements; expected {' or '.join(map(str, sizes))}"
        if len(self.shape) > MAX_RANK:
            yield f"shape has {len(self.shape)} dimensions; ranks 0 to {MAX_RANK} are supported"

    def infer(self, state: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        return state.with_constant(None), TensorInfo(self.shape, self.dtype)
