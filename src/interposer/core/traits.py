"""What may be known of an operator without its kernel: its traits, the roles of its operands, and its quantized form.

These facts are declared with the operator, and the optimizer, the quantizer, the writers and the conformance kit ask
the operator for them. None of them has a table of operators. `interposer.testing.trait_errors` checks the
declarations against the samples of the operator.
"""

from __future__ import annotations

from enum import Enum, Flag, auto

__all__ = ["ResultQuantization", "Role", "Trait"]


class Trait(Flag):
    """Properties of an operator. `Op.traits` is a combination of them, which may depend on the attributes.

    An operator that lacks a trait is treated with caution: it is computed as it stands. A wrong trait makes wrong
    results.

    MOVES: each element of a result is an element of a data operand, bit by bit, or a fill value (see FILLS). Shapes,
        attributes and operands of other roles determine which element it is; values of data operands do not. Results of
        another type than the data, such as indices, are exact. Examples: Transpose, Gather, Where.
    FILLS: a result may also have elements of no operand, such as the zeros of padding. Only with MOVES. Example: Pad.
    CHOOSES: each element of the first result is an element of a data operand or zero. The order of the elements, with
        zero among them, determines which one. The operator thus commutes with increasing functions that map zero to
        zero. The chosen zero may have either sign. Examples: Maximum, max pooling, RELU.
    POINTWISE: after broadcasting all operands to one shape by NumPy's rule, an element of the only result depends on
        the elements at the same position only, and in the same way at every position. A transpose of all operands
        thus transposes the result. Scales of one axis move with that axis. Examples: Activation, Addition, Where.
    COMMUTATIVE: the result stays the same, bit by bit, if the first two operands are swapped. Example: Addition.
    CONVERTS: the result has the numbers of the first operand at the same positions, in another type or with another
        quantization. Examples: Cast, Dequantize.
    EXACT: results have no rounding error, so that no tolerance applies to them, except that a zero may have either
        sign. MOVES and CHOOSES imply this. Example: ArgMinMax.
    DISCONTINUOUS: a small difference of an operand can make a large difference of a float result. The operator rounds,
        compares, selects or counts. Results that are integers need no declaration. Example: Floor.
    RANDOM: the results are drawn at random, so that two runs differ. Such an operator is not `pure`. Example:
        RandomFill.
    """

    NONE = 0
    MOVES = auto()
    FILLS = auto()
    CHOOSES = auto()
    POINTWISE = auto()
    COMMUTATIVE = auto()
    CONVERTS = auto()
    EXACT = auto()
    DISCONTINUOUS = auto()
    RANDOM = auto()

    def overlaps(self, other: Trait) -> bool:
        """Return True if both have a trait in common. This is much faster than `&`, which creates a combination."""
        return bool(self._value_ & other._value_)


class Role(Enum):
    """What an operand is for, declared with `operand(role=...)`.

    DATA: the tensors that the operator works on. They are the operands that are quantized as activations.
    WEIGHTS: a learned tensor that multiplies the data, such as the filter of a convolution.
    BIAS: a learned tensor that is added to the sums of products.
    PARAMETER: another tensor of numbers that configures the computation, such as a scale, a mean or a slope.
    SIZES: integers that determine shapes or places: a shape, paddings, starts, lengths, a number of iterations.
    INDICES: integers that select elements of another operand.
    CONDITION: booleans that select elements or branches; a mask.
    """

    DATA = "data"
    WEIGHTS = "weights"
    BIAS = "bias"
    PARAMETER = "parameter"
    SIZES = "sizes"
    INDICES = "indices"
    CONDITION = "condition"


class ResultQuantization(Enum):
    """How the quantization of the results follows from that of the data, if an operator computes on quantized values.

    SAME: data and results have one quantization, since nothing is rescaled.
    OBSERVED: the results have a quantization of their own, for the range of their values. Data operands may have
        different ones.
    PRESCRIBED: the operator determines the quantization of its results, such as 1/256 for Softmax.
    NONE: the results are not quantized, such as indices.
    """

    SAME = "same"
    OBSERVED = "observed"
    PRESCRIBED = "prescribed"
    NONE = "none"
