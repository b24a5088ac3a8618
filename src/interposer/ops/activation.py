"""Activation functions and softmax."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar, Final, Self

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Trait
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops.axes import axes_problems
from interposer.ops.quantization import Requantization, requantization

__all__ = ["Activation", "ActivationFunction", "Hardmax", "LogSoftmax", "Softmax"]


class ActivationFunction(Enum):
    """The function that `Activation` applies to every element; the formulas are in its documentation."""

    __hash__ = object.__hash__  # members are unique; that of `Enum` hashes the name in Python

    SIGMOID = "sigmoid"
    TANH = "tanh"
    LINEAR = "linear"
    RELU = "relu"
    BOUNDED_RELU = "bounded_relu"
    SOFT_RELU = "soft_relu"
    LEAKY_RELU = "leaky_relu"
    ABS = "abs"
    SQRT = "sqrt"
    SQUARE = "square"
    ELU = "elu"
    HARD_SWISH = "hard_swish"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SELU = "selu"
    CELU = "celu"
    SOFTSIGN = "softsign"
    HARD_SIGMOID = "hard_sigmoid"
    SWISH = "swish"
    MISH = "mish"
    THRESHOLDED_RELU = "thresholded_relu"
    SHRINK = "shrink"


# Output quantization that TFLite prescribes: scale and zero point for uint8 (int8: 128 less), and scale for int16.
_UNIT: Final = (2.0**-8, 0, 2.0**-15)
_SYMMETRIC_UNIT: Final = (2.0**-7, 128, 2.0**-15)
_LOGARITHMS: Final = (16 * 2.0**-8, 255, 16 * 2.0**-15)


def _prescribed(input: TensorInfo, quantization_rule: tuple[float, int, float]) -> TensorInfo:
    scale, zero_point, int16_scale = quantization_rule
    info = input.with_constant(None)
    if not input.is_quantized or input.dtype not in (DataType.INT8, DataType.UINT8, DataType.INT16):
        return info
    if input.dtype is DataType.INT16:
        return info.with_quantization(Quantization(int16_scale))
    return info.with_quantization(Quantization(scale, zero_point - (128 if input.dtype is DataType.INT8 else 0)))


_A: Final = {
    ActivationFunction.TANH: 1.0,
    ActivationFunction.LINEAR: 1.0,
    ActivationFunction.BOUNDED_RELU: 6.0,
    ActivationFunction.LEAKY_RELU: 0.01,
    ActivationFunction.ELU: 1.0,
    ActivationFunction.SELU: 1.67326319217681884765625,
    ActivationFunction.CELU: 1.0,
    ActivationFunction.HARD_SIGMOID: 0.2,
    ActivationFunction.SWISH: 1.0,
    ActivationFunction.THRESHOLDED_RELU: 1.0,
    ActivationFunction.SHRINK: 0.5,
}
"""The default of `a` for the functions that have the parameter."""
_B: Final = {
    ActivationFunction.TANH: 1.0,
    ActivationFunction.SELU: 1.05070102214813232421875,
    ActivationFunction.HARD_SIGMOID: 0.5,
}
"""The default of `b` for the functions for which it is not 0."""
_TRAITS: Final = {
    ActivationFunction.RELU: Trait.POINTWISE | Trait.CHOOSES,
    ActivationFunction.ABS: Trait.POINTWISE | Trait.EXACT,
    ActivationFunction.THRESHOLDED_RELU: Trait.POINTWISE | Trait.DISCONTINUOUS,
    ActivationFunction.SHRINK: Trait.POINTWISE | Trait.DISCONTINUOUS,
}
"""The traits of functions that are more than pointwise."""
_STEEP: Final = frozenset({ActivationFunction.SQRT, ActivationFunction.SQUARE})
_OF_16_BITS: Final = frozenset(
    {
        ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LEAKY_RELU,
        ActivationFunction.SIGMOID, ActivationFunction.TANH, ActivationFunction.HARD_SWISH, ActivationFunction.ABS,
    }
)  # fmt: skip
"""The functions that are computed on 16-bit integers; there is no lookup table for so many values."""


@op
class Activation(Op):
    """Apply a function to every element; `a` and `b` are the function's parameters.

    The defaults of `a` and `b` depend on the function, and are those of the ONNX operator: TANH has a = 1, b = 1;
    LINEAR 1, 0; LEAKY_RELU a = 0.01; ELU, CELU, SWISH and THRESHOLDED_RELU a = 1; SELU a = 1.6732632, b = 1.050701;
    HARD_SIGMOID 0.2, 0.5; SHRINK 0.5, 0. BOUNDED_RELU is ReLU6 by default. A bound of BOUNDED_RELU that is NaN does
    not bound, as in ONNX's Clip, and is stored as an infinity.

    ================== ==============================================================================
    SIGMOID            1 / (1 + exp(-x))
    TANH               a * tanh(b * x)
    LINEAR             a * x + b
    RELU               max(0, x)
    BOUNDED_RELU       min(a, max(b, x)); ReLU6 has a = 6, b = 0
    SOFT_RELU          log(1 + exp(x))
    LEAKY_RELU         x where x > 0, else a * x
    ABS, SQRT, SQUARE  as named
    ELU                x where x >= 0, else a * (exp(x) - 1)
    HARD_SWISH         x * min(6, max(0, x + 3)) / 6
    GELU               x * (1 + erf(x / sqrt(2))) / 2
    GELU_TANH          x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2
    SELU               b * (x where x > 0, else a * (exp(x) - 1))
    CELU               max(0, x) + min(0, a * (exp(x / a) - 1))
    SOFTSIGN           x / (1 + abs(x))
    HARD_SIGMOID       min(1, max(0, a * x + b))
    SWISH              x / (1 + exp(-a * x))
    MISH               x * tanh(log(1 + exp(x)))
    THRESHOLDED_RELU   x where x > a, else 0
    SHRINK             x - b where x > a, x + b where x < -a, else 0
    ================== ==============================================================================

    If the output of a quantized SIGMOID or TANH has no declared quantization, the one that TFLite prescribes is used.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(Activation(function=ActivationFunction.BOUNDED_RELU, a=6.0), [-1.0, 2.0, 8.0]).tolist()
        [0.0, 2.0, 6.0]
        >>> compute(Activation(function=ActivationFunction.LEAKY_RELU, a=0.25), [-4.0, 4.0]).tolist()
        [-1.0, 4.0]
        >>> compute(Activation(function=ActivationFunction.TANH), [0.0, 20.0]).tolist()
        [0.0, 1.0]
        >>> sigmoid = Activation(function=ActivationFunction.SIGMOID)
        >>> compute(sigmoid, np.int8([-128, 0, 127]), quantization={"input": Quantization(0.5)}).tolist()
        [-128, 0, 127]

    Source:
        ONNX Sigmoid-13, Tanh-13, Relu-14, Clip-13, Softplus-22, LeakyRelu-16, Elu-22, HardSwish-22, Gelu-20, Selu-22,
        Celu-12, Softsign-22, HardSigmoid-22, Swish-24, Mish-22, ThresholdedRelu-22, Shrink-9; TFLite LOGISTIC, TANH,
        RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, LEAKY_RELU, ELU, HARD_SWISH, GELU; NNAPI LOGISTIC, TANH, RELU, RELU1,
        RELU6, ELU, HARD_SWISH; Arm NN ActivationDescriptor.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result(like="input")

    function: ActivationFunction = attribute(default=ActivationFunction.SIGMOID, doc="The function to apply.")
    a: float = attribute(
        default=0.0,
        by="function",
        defaults=_A,
        doc="First parameter of the function: an upper bound, a slope or a factor.",
    )
    b: float = attribute(
        default=0.0, by="function", defaults=_B, doc="Second parameter of the function: a lower bound or an offset."
    )
    requantization: Requantization = requantization()

    def _bound(self, arguments: dict[str, Any]) -> dict[str, Any]:
        values = super()._bound(arguments)
        if values["function"] is ActivationFunction.BOUNDED_RELU:
            values["a"] = math.inf if math.isnan(values["a"]) else values["a"]
            values["b"] = -math.inf if math.isnan(values["b"]) else values["b"]
        return values

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some attributes changed; a bound that is NaN becomes an infinity."""
        return type(self)(**(self.attribute_values() | changes))

    @property
    def traits(self) -> Trait:
        return _TRAITS.get(self.function, Trait.POINTWISE)

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.function in _STEEP:
            return f"{self.function.name} loses too much precision in integers"
        if dtype.bits > 8 and self.function not in _OF_16_BITS:
            return f"{self.function.name} has no form in integers of {dtype.bits} bits"
        is_prescribed = self.function is ActivationFunction.SIGMOID or (
            self.function is ActivationFunction.TANH and (self.a, self.b) == (1.0, 1.0)
        )
        return ResultQuantization.PRESCRIBED if is_prescribed else ResultQuantization.OBSERVED

    def check(self, input: TensorInfo) -> Iterator[str]:
        if self.function is ActivationFunction.BOUNDED_RELU and self.a < self.b:
            yield f"the upper bound a is {self.a:g}, below the lower bound b, {self.b:g}"
        if self.function is ActivationFunction.CELU and self.a == 0:
            yield "a is 0, but CELU divides by it"

    def infer(self, input: TensorInfo) -> TensorInfo:
        if self.function is ActivationFunction.SIGMOID:
            return _prescribed(input, _UNIT)
        if self.function is ActivationFunction.TANH:
            return _prescribed(input, _SYMMETRIC_UNIT)
        return input.with_constant(None)


@op(quantized=ResultQuantization.PRESCRIBED)
class Softmax(Op):
    """Turn scores into probabilities along an axis: exp(beta * x) / sum of exp(beta * x).

    If no quantization is declared for a quantized output, the one that TFLite prescribes is used.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> compute(Softmax(), np.log([1.0, 3.0])).round(6).tolist()
        [0.25, 0.75]
        >>> compute(Softmax(axis=0), [[5.0, 7.0], [5.0, 7.0]]).tolist()
        [[0.5, 0.5], [0.5, 0.5]]

    Source:
        ONNX Softmax-13; TFLite SOFTMAX; NNAPI SOFTMAX; Arm NN SoftmaxDescriptor.
    """

    input = operand()
    output = result(like="input")

    beta: float = attribute(default=1.0, doc="Factor that multiplies the scores.")
    axis: int = attribute(default=-1, doc="The axis along which the results sum to 1.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)

    def infer(self, input: TensorInfo) -> TensorInfo:
        return _prescribed(input, _UNIT)


@op(quantized=ResultQuantization.PRESCRIBED)
class LogSoftmax(Op):
    """The logarithm of `Softmax`: beta * x - log(sum of exp(beta * x)).

    If no quantization is declared for a quantized output, the one that TFLite prescribes is used.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> np.exp(compute(LogSoftmax(), np.log([1.0, 3.0]))).round(6).tolist()
        [0.25, 0.75]

    Source:
        ONNX LogSoftmax-13; TFLite LOG_SOFTMAX; NNAPI LOG_SOFTMAX; Arm NN LogSoftmaxDescriptor.
    """

    input = operand()
    output = result(like="input")

    beta: float = attribute(default=1.0, doc="Factor that multiplies the scores.")
    axis: int = attribute(default=-1, doc="The axis along which the exponentials of the results sum to 1.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)

    def infer(self, input: TensorInfo) -> TensorInfo:
        return _prescribed(input, _LOGARITHMS)


@op(traits=Trait.EXACT | Trait.DISCONTINUOUS)
class Hardmax(Op):
    """1 for the greatest element along an axis, 0 for all others; the first of several equal maxima gets the 1.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> compute(Hardmax(), [[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]]).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
        >>> compute(Hardmax(axis=0), [[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]]).tolist()
        [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]

    Source:
        ONNX Hardmax-13.
    """

    input = operand()
    output = result(like="input")

    axis: int = attribute(default=-1, doc="The axis along which exactly one element is 1.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)
