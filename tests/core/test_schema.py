"""The declaration of operators, and what is derived from it."""

import copy
import inspect
import json
import math
import pickle
from contextlib import suppress
from enum import Enum, IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import interposer.ops
from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, annotation, attribute, op, op_class, operand, registered_ops, result
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import DepthToSpace


class Mode(Enum):
    FAST = 1
    EXACT = 2


@op(register=False)
class Blend(Op):
    """Mix images."""

    first = operand(rank=(2, 4), dtypes={DataType.FLOAT32, DataType.FLOAT16})
    second = operand(same_dtype_as="first", optional=True)
    others = operand(variadic=True, optional=True)
    mixed = result(like="first")
    masks = result(variadic=True)

    count: int = attribute(ge=0, le=8, doc="How many masks.")
    weight: float = attribute(default=0.5, gt=0, lt=1)
    mode: Mode = Mode.FAST
    pads: tuple[tuple[int, int], ...] = attribute(default=(), ge=0)
    fill: float | None = None
    table: Array = attribute(default=())
    kind: str = attribute(default="a", choices=("a", "b"))

    def num_results(self):
        return 1 + self.count

    def check(self, first, second, others):
        if second is not None and second.rank != first.rank:
            yield f"second has rank {second.rank}; expected {first.rank}"


def refused(call, *args, **kwargs):
    with pytest.raises(InvalidArgumentError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# --- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_are_given_by_position_or_by_name_and_have_defaults():
    blend = Blend(3, weight=0.25)
    assert (blend.count, blend.weight, blend.mode, blend.fill) == (3, 0.25, Mode.FAST, None)
    assert blend.attribute_values().keys() == {"count", "weight", "mode", "pads", "fill", "table", "kind"}
    assert repr(blend) == "Blend(count=3, weight=0.25)"


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((), {}, "Blend needs the attribute 'count'"),
    ((1,), {"count": 1}, "Blend: count is given twice"),
    ((1, 0.5, Mode.FAST, (), None, (), "a", 9), {}, "Blend has 7 attributes, but 8 were given"),
    ((1,), {"wait": 0.5}, "Blend has no attribute 'wait'; did you mean 'weight'?"),
    (("1",), {}, "Blend: count must be an integer, not '1'"),
    ((True,), {}, "Blend: count must be an integer, not True"),
    ((1,), {"mode": "FAST"}, "Blend: mode must be a member of Mode (FAST, EXACT), not 'FAST'"),
    ((1,), {"fill": "x"}, "Blend: fill must be a number or None, not 'x'"),
    ((1,), {"pads": ((1,),)},
     "Blend: pads must be a tuple of any number of items, each a tuple of 2 items, each an integer, not ((1,),)"),
    ((9,), {}, "Blend: count is 9; expected <= 8"),
    ((1,), {"weight": 1}, "Blend: weight is 1.0; expected < 1"),
    ((1,), {"weight": math.nan}, "Blend: weight is nan; expected > 0"),
    ((1,), {"pads": ((0, 1), (-2, 0))}, "Blend: pads is -2; expected >= 0"),
    ((1,), {"kind": "c"}, "Blend: kind is c; expected one of a, b"),
    ((1,), {"table": [[1], [1, 2]]}, "Blend: table must be an array, not [[1], [1, 2]]"),
    (("1" * 1000,), {}, "Blend: count must be an integer, not '111111111111...1111111111111'"),
])  # fmt: skip
def test_attributes_that_cannot_be_meant_are_refused(args, kwargs, message):
    assert refused(Blend, *args, **kwargs) == message


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@op(register=False)
class Amplify(Op):
    """Multiply by a level.

    Shapes:
        output: that of x
    """

    x = operand()
    output = result(like="x")
    level: Level = attribute(doc="The factor.")


def test_a_number_that_equals_a_member_of_an_enum_is_no_member():
    message = "Amplify: level must be a member of Level (LOW, HIGH), not 1"
    assert refused(Amplify, 1) == message
    assert refused(Amplify(Level.HIGH).replace, level=1) == message
    assert hash(Amplify(Level.LOW)) == hash(Amplify(Level["LOW"])) == hash(copy.deepcopy(Amplify(Level.LOW)))


def test_an_error_about_an_enum_names_the_public_module_from_which_it_is_imported():
    assert refused(DepthToSpace, 2, mode="DCR") == (
        "DepthToSpace: mode must be a member of interposer.ops.DepthToSpaceMode (DCR, CRD), not 'DCR'"
    )
    assert refused(DepthToSpace, 2, data_layout="X") == (
        "DepthToSpace: data_layout must be a member of interposer.types.DataLayout (NCHW, NHWC, NCDHW, NDHWC), not 'X'"
    )


def test_an_operator_is_a_value():
    blend = Blend(2, pads=[[1, 2]], fill=math.nan, table=np.arange(3))
    assert blend == Blend(2, pads=((1, 2),), fill=math.nan, table=np.arange(3))
    assert hash(blend) == hash(blend.replace())
    assert blend != blend.replace(table=np.arange(3, dtype=float))
    assert blend != blend.replace(fill=None)
    assert copy.deepcopy(blend) == blend


def test_an_operator_does_not_change():
    with pytest.raises(AttributeError, match=r"Blend is immutable; use replace\(count=\.\.\.\)"):
        Blend(2).count = 3
    with pytest.raises(AttributeError, match="Blend is immutable"):
        del Blend(2).count
    assert Blend(2).replace(count=3).count == 3
    assert refused(Blend(2).replace, count=9) == "Blend: count is 9; expected <= 8"


def test_only_attributes_that_are_not_at_their_default_are_told():
    assert Blend(2, weight=0.5, pads=()).changed_attributes() == {"count": 2}


def test_the_signature_is_that_of_the_attributes():
    assert str(inspect.signature(Blend)).startswith("(count, weight=0.5, mode=<Mode.FAST: 1>, pads=(), fill=None")
    assert annotation(Blend, "fill") == float | None


# --- operands and results ---------------------------------------------------------------------------------------------

F32 = TensorInfo((2, 3))


@pytest.mark.parametrize(("infos", "problems"), [
    ((F32,), []),
    ((F32, F32, F32, F32), []),
    ((F32, None, F32), []),
    ((), ["first is not connected"]),
    ((None, F32), ["first is not connected"]),
    ((TensorInfo((2,)), F32), ["first has rank 1, shape [2]; expected rank 2 to 4"]),
    ((TensorInfo((2, 3), "int8"),), ["first is int8; expected one of float16, float32"]),
    ((F32, TensorInfo((2, 3), "float16")), ["second is float16; expected float32, the type of first"]),
    ((F32, TensorInfo((3,))), ["second has rank 1; expected 2"]),
    ((TensorInfo((2,), "int8"),),
     ["first has rank 1, shape [2]; expected rank 2 to 4", "first is int8; expected one of float16, float32"]),
])  # fmt: skip
def test_operands_are_checked_by_their_declarations(infos, problems):
    assert Blend(1).violations(*infos) == problems


@op(register=False)
class Join(Op):
    """Join tensors."""

    inputs = operand(rank=1, variadic=True, same_dtype_as="inputs")
    output = result(like="inputs")


@pytest.mark.parametrize(("infos", "problems"), [
    ((), ["inputs needs at least one value"]),
    ((None,), ["inputs[0] is not connected"]),
    ((TensorInfo((2,)), F32), ["inputs[1] has rank 2, shape [2, 3]; expected rank 1"]),
    ((TensorInfo((2,)), TensorInfo((2,), "int8")), ["inputs is int8; expected float32, the type of inputs"]),
])  # fmt: skip
def test_values_of_a_variadic_operand_are_checked_each(infos, problems):
    assert Join().violations(*infos) == problems


def test_absent_values_of_an_optional_variadic_operand_are_no_fault():
    assert Blend(1).violations(F32, None, None, F32) == []


def test_too_many_inputs_are_a_fault():
    assert interposer.ops.Activation().violations(F32, F32) == ["Activation takes at most 1 inputs, but 2 were given"]


def test_values_are_dealt_out_to_the_operands():
    assert Blend(1).arguments(["a"]) == ["a", None, ()]
    assert Blend(1).arguments(["a", None, "c", "d"]) == ["a", None, ("c", "d")]


def test_operands_and_results_have_names_by_position():
    blend = Blend(2)
    assert [blend.operand_name(i) for i in range(4)] == ["first", "second", "others[0]", "others[1]"]
    assert [blend.result_name(i) for i in range(3)] == ["mixed", "masks_0", "masks_1"]


def test_a_result_is_like_its_operand_or_must_be_declared():
    known = TensorInfo.of(np.ones((2, 3), np.float32))
    [mixed, mask] = Blend(1).infer_infos(known)
    assert mixed == F32
    assert mixed.constant is None
    assert mask is None


def test_the_number_of_inferred_infos_is_checked():
    class Odd(Join):
        def infer(self, inputs):
            return ()

    assert refused(Odd().infer_infos, F32) == "Odd infers 0 infos for 1 results"


# --- declarations -----------------------------------------------------------------------------------------------------


def declare(**body):
    annotations = body.pop("annotations", {})
    return op(register=False)(type("Made", (Op,), {"__module__": __name__, "__annotations__": annotations, **body}))


@pytest.mark.parametrize(("body", "message"), [
    ({"a": operand(variadic=True), "b": operand()}, "Made: 'a' is variadic and must come last"),
    ({"a": result(variadic=True), "b": result()}, "Made: 'a' is variadic and must come last"),
    ({"size": attribute(default=1)}, "Made: the attribute 'size' has no annotation"),
    ({"a": operand(), "b": operand(same_dtype_as="c")},
     "Made: same_dtype_as names 'c', which is not an operand"),
    ({"a": operand(optional=True), "b": result(like="a")},
     "Made: like names 'a', which is not a required operand"),
    ({"replace": operand()}, "Made: the name 'replace' is reserved: every operator has it"),
    ({"annotations": {"size": "int", "kind": "str"}, "size": attribute(by="kind"), "kind": attribute(default="a")},
     "Made: the default of 'size' depends on 'kind', which is not an attribute before it"),
    ({"annotations": {"op": "int"}}, "Made: the name 'op' is reserved: every operator has it"),
    ({"a": operand(), "infer": lambda self, a, b: a}, "Made: infer takes 3 arguments; expected infer(self, a)"),
    ({"a": operand(), "check": lambda self: ()}, "Made: check takes 1 arguments; expected check(self, a)"),
])  # fmt: skip
def test_a_wrong_declaration_is_refused_at_once(body, message):
    assert refused(declare, **body) == message


def test_an_annotation_that_no_attribute_can_have_is_refused_with_its_place():
    assert refused(declare(annotations={"size": "dict"}), 1) == (
        "Made.size: an attribute cannot be annotated with <class 'dict'>"
    )
    assert refused(declare(annotations={"size": "Nowhere"}), 1) == "Made.size: name 'Nowhere' is not defined"


@pytest.mark.parametrize(
    ("size", "wrong"),
    [
        (attribute(default=-1, ge=0), -1),
        (attribute(default=1, by="kind", defaults={"b": -2}, ge=0), -2),
    ],
)
def test_a_default_out_of_its_bounds_is_refused_when_an_operator_is_made(size, wrong):
    made = declare(annotations={"kind": "str", "size": "int"}, kind=attribute(default="a"), size=size)
    for arguments in ({}, {"size": 1}):
        assert refused(made, **arguments) == f"Made: size is {wrong}; expected >= 0"


def test_only_a_subclass_of_op_is_an_operator():
    assert refused(op, int) == "@op needs a subclass of Op, but int is not one"


def test_a_subclass_adds_to_what_it_derives_from():
    @op(register=False)
    class Softer(Blend):
        """Mix images softly."""

        count: int = 4
        softness: float = 1.0

    assert list(Softer.attributes) == [*Blend.attributes, "softness"]
    assert Softer().count == 4
    assert Softer.operands == Blend.operands
    assert Softer() != Blend(4)


def test_a_subclass_is_executable_and_pure_as_what_it_derives_from():
    @op(executable=False, pure=False, register=False)
    class Base(Op):
        """A base."""

    @op(register=False)
    class Derived(Base):
        """Derived from it."""

    @op(executable=True, register=False)
    class Changed(Base):
        """Derived with a change."""

    assert (Derived.executable, Derived.pure, Changed.executable) == (False, False, True)


def test_a_name_is_declared_in_one_module_only():
    taken = type("Softmax", (Op,), {"__module__": __name__, "__doc__": "Another."})
    assert refused(op, taken) == "an operator 'Softmax' is declared in interposer.ops.activation already"
    assert op_class("Softmax") is interposer.ops.Softmax


def test_an_unknown_name_is_refused_with_the_nearest():
    assert refused(op_class, "SoftMacs") == "unknown operator 'SoftMacs'; did you mean 'Softmax'?"


# --- plain data -------------------------------------------------------------------------------------------------------


REQUIRED = {
    "value": np.ones(2), "pad_list": ((0, 1),), "dim_mappings": (0,), "permutation": (0,), "axis": 0, "sizes": (1, 2),
    "size": (1,), "begin": (0,), "target_shape": (-1,), "multiples": (2,), "block_size": 2,
}  # fmt: skip


def with_known_values():
    for cls in registered_ops().values():
        needed = {name for name, declared in cls.attributes.items() if declared.required}
        with suppress(KeyError, InvalidArgumentError):
            yield cls(**{name: REQUIRED[name] for name in needed})


@pytest.mark.parametrize("made", list(with_known_values()), ids=lambda created: created.op_name())
def test_every_operator_is_written_as_json_and_read_back(made):
    assert Op.from_plain(json.loads(json.dumps(made.to_plain()))) == made
    assert pickle.loads(pickle.dumps(made)) == made


@given(st.floats(), st.floats())
def test_numbers_are_written_exactly(a, b):
    activation = interposer.ops.Activation(a=a, b=b)
    assert Op.from_plain(json.loads(json.dumps(activation.to_plain()))) == activation


def test_plain_data_names_the_operator_and_what_is_not_at_its_default():
    constant = interposer.ops.Constant(np.array([1], "int8"), Quantization(0.5))
    assert constant.to_plain() == {
        "op": "Constant",
        "value": {"dtype": "int8", "shape": [1], "base64": "AQ=="},
        "quantization": {"scales": [0.5], "zero_points": [0], "axis": None},
    }


@pytest.mark.parametrize(("plain", "message"), [
    ([], "an operator is described by a mapping, not []"),
    ({}, "the description of an operator has no name ('op')"),
    ({"op": "Sofmax"}, "unknown operator 'Sofmax'; did you mean 'Softmax'?"),
    ({"op": "Softmax", "bta": 1}, "Softmax has no attribute 'bta'; did you mean 'beta'?"),
    ({"op": "Softmax", "beta": "x"}, "Softmax cannot be read: could not convert string to float: 'x'"),
    ({"op": "Softmax", "axis": None}, "Softmax: axis must be an integer, not None"),
    ({"op": "Activation", "function": "RELLU"}, "Activation cannot be read: 'RELLU'"),
    ({"op": "Constant", "value": 3}, "Constant cannot be read: 'int' object is not subscriptable"),
    ({"op": "Constant"}, "Constant needs the attribute 'value'"),
], ids=str)  # fmt: skip
def test_damaged_plain_data_is_refused(plain, message):
    assert refused(Op.from_plain, plain) == message
