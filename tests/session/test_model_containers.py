"""Models that take and give what is no tensor: sequences as lists of arrays, optionals as an element or None."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import interposer as ip
from interposer.backend import Backend, Capabilities, KernelTable
from interposer.core.errors import BindingError, ExecutionError, UnsupportedLayerError
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import reference
from interposer.ops import Addition

F32 = TensorInfo((None, 2))
ROWS = [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])]


def sequence(element=F32, length=None):
    return TensorInfo((length,), DataType.SEQUENCE, element=element)


def optional(element=F32):
    return TensorInfo((None,), DataType.OPTIONAL, element=element)


def model(info, layers=lambda network, x: x, **options):
    """A model with one input of that info and the outputs that `layers` makes of it."""
    network = ip.Network("test")
    created = layers(network, network.add_input_layer(0, info, name="x"))
    for number, item in enumerate(created if isinstance(created, list) else [created]):
        network.add_output_layer(number, item, name=f"y{number}")
    return ip.load(network, backends=options.pop("backends", ["CpuRef"]), **options)


def at(number):
    return lambda network, x: network.add_sequence_at_layer(x, network.add_constant_layer(np.int64(number)))


def test_a_sequence_goes_in_and_comes_out_as_a_list():
    result = model(sequence())(ROWS)
    assert isinstance(result, list)
    for item, expected in zip(result, ROWS, strict=True):
        assert_array_equal(item, expected)


def test_what_comes_out_is_not_the_callers_memory():
    value = [row.copy() for row in ROWS]
    result = model(sequence())(value)
    result[0][:] = 9
    assert_array_equal(value[0], ROWS[0])


def test_an_empty_sequence_goes_in_and_comes_out():
    assert model(sequence())([]) == []


def test_sequences_of_several_lengths_go_through_one_model():
    created = model(sequence(), lambda network, x: network.add_concat_from_sequence_layer(x, axis=0))
    assert created(ROWS).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert created(ROWS[:1]).tolist() == [[1, 2]]
    assert created(ROWS * 3).shape == (9, 2)


def test_elements_of_other_ranks_take_part_in_arithmetic():
    def layers(network, x):
        item = at(0)(network, x)
        return network.add_addition_layer(item, item)

    created = model(sequence(TensorInfo(...)), layers)
    assert str(created.outputs["y0"]) == "float32[...]"
    assert created([np.float32(3)]).tolist() == 6
    assert created([np.float32([[1, 2]])]).tolist() == [[2, 4]]


def test_elements_become_arrays_of_the_elements_type_as_inputs_do():
    [result] = model(sequence())([[[1, 2]]])
    assert result.dtype == np.float32


def test_an_optional_holds_an_element_or_none():
    created = model(optional(), lambda network, x: [x, network.add_optional_has_element_layer(x)])
    result, there = created.run([ROWS[0]])
    assert_array_equal(result, ROWS[0])
    assert there
    result, there = created.run([None])
    assert result is None
    assert not there


def test_an_optional_may_hold_a_sequence():
    info = optional(sequence())
    created = model(info, lambda network, x: [x, network.add_optional_get_element_layer(x)])
    result, held = created.run([ROWS])
    assert [item.tolist() for item in result] == [item.tolist() for item in held] == [row.tolist() for row in ROWS]


def test_strings_are_elements_like_others():
    created = model(sequence(TensorInfo(..., DataType.STRING)), at(-1))
    assert created([["a"], [["b", "c"]]]).tolist() == [["b", "c"]]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (np.float32([[1, 2]]), "input 'x' is a sequence; give a list of arrays, not ndarray"),
        ({"a": 1}, "the model has no input 'a'"),
        ([np.complex64([[1, 2]])], r"input 'x'\[0\] is complex64; expected float32; convert it explicitly"),
        ([ROWS[0], np.float32([1])], r"input 'x'\[1\] has shape \[1\]; expected \[\?, 2\]"),
        ([ROWS[0], np.float32([[1]])], r"input 'x'\[1\] has shape \[1, 1\]; expected \[\?, 2\]"),
        ([ROWS[0], "text"], r"input 'x'\[1\] is <U4; expected float32; convert it explicitly"),
        ([None], r"input 'x'\[0\] is None; expected float32\[\?, 2\]"),
        ([[[1], [2, 3]]], r"input 'x'\[0\] cannot be made into an array"),
    ],
    ids=["array", "mapping", "type", "rank", "extent", "text", "none", "ragged"],
)
def test_what_is_wrong_with_an_element_is_said_with_its_place(given, fault):
    with pytest.raises(BindingError, match=f"^{fault}"):
        model(sequence())(given)


def test_a_sequence_of_another_length_is_refused():
    with pytest.raises(BindingError, match=r"^input 'x' has 1 element; expected sequence\[2\] of float32\[\?, 2\]$"):
        model(sequence(length=2))(ROWS[:1])


def test_the_runtime_says_which_element_does_not_fit():
    optimized = ip.optimize(model(sequence(length=1)).network, ["CpuRef"])
    with ip.Runtime() as runtime:
        loaded = runtime.load_network(optimized)
        with pytest.raises(BindingError, match=r"^input 0 \(x\)\[0\] is float64; expected float32$"):
            runtime.enqueue_workload(loaded, {0: [np.ones((1, 2))]})
        with pytest.raises(BindingError, match=r"^output 0 \(y0\) is sequence.*no tensor that an array could hold"):
            runtime.enqueue_workload(loaded, {0: ROWS[:1]}, {0: np.empty(1, object)})
        assert len(runtime.enqueue_workload(loaded, {0: ROWS[:1]})[0]) == 1


def test_a_place_that_is_not_there_is_told_when_the_network_runs():
    def layers(network, x):
        return network.add_sequence_at_layer(x, network.add_input_layer(1, TensorInfo((), "int64"), name="place"))

    created = model(sequence(), layers)
    assert_array_equal(created({"x": ROWS, "place": np.int64(-2)}), ROWS[0])
    with pytest.raises(ExecutionError, match="position is 5; expected -2 to 1"):
        created({"x": ROWS, "place": np.int64(5)})


def test_an_empty_optional_has_no_element_to_get():
    created = model(optional(), lambda network, x: network.add_optional_get_element_layer(x))
    with pytest.raises(ExecutionError, match="the optional is empty"):
        created(None)


def test_elements_of_other_shapes_that_cannot_be_joined_are_told():
    created = model(sequence(TensorInfo(...)), lambda network, x: network.add_concat_from_sequence_layer(x, axis=0))
    with pytest.raises(ExecutionError, match="the elements cannot be concatenated along axis 0"):
        created([np.float32([1]), np.float32([[1]])])


# --- backends ---------------------------------------------------------------------------------------------------------


class Adder(Backend):
    """Knows no sequences."""

    id = "Adder"
    kernels = KernelTable()
    kernels(Addition)(lambda op, a, b: a + b)


class Other(Backend):
    """Takes everything that the reference takes."""

    id = "Other"
    kernels = reference()
    capabilities = Capabilities(DynamicShapes=True, Sequences=True)


@pytest.fixture
def runtime():
    with ip.Runtime() as runtime:
        runtime.registry.register("Adder", Adder)
        runtime.registry.register("Other", Other)
        yield runtime


def test_a_backend_without_the_capability_is_not_asked_and_says_why(runtime):
    created = model(sequence(), at(0), backends=["Adder", "CpuRef"], runtime=runtime)
    created(ROWS)
    [reasons] = [refusal.reasons for refusal in created.optimized.refusals]
    assert reasons[0].endswith("which is no tensor, and it lacks the capability Sequences")
    with pytest.raises(UnsupportedLayerError, match="lacks the capability Sequences"):
        model(sequence(), at(0), backends=["Adder"], runtime=runtime)(ROWS)


def test_tensors_from_sequences_go_on_to_other_backends(runtime):
    def layers(network, x):
        item = network.add_sequence_at_layer(x, network.add_constant_layer(np.int64(0)), outputs=TensorInfo((1, 2)))
        return network.add_addition_layer(item, item)

    created = model(sequence(length=2), layers, backends=["Adder", "CpuRef"], runtime=runtime)
    assert created(ROWS).tolist() == [[2, 4]]
    assert {placement.backend for placement in created.optimized.placements} == {"Adder", "CpuRef"}


def test_sequences_pass_between_backends_without_a_copy(runtime):
    def layers(network, x):
        longer = network.add_sequence_insert_layer(x, network.add_constant_layer(ROWS[0]), name="longer")
        longest = network.add_sequence_insert_layer(longer, network.add_constant_layer(ROWS[1]), name="longest")
        return [longest, network.add_sequence_length_layer(longest, name="length")]

    options = ip.OptimizerOptions(hints={"longer": "Other", "longest": "CpuRef"})
    created = model(sequence(), layers, backends=["CpuRef", "Other"], runtime=runtime, options=options)
    result, length = created.run([ROWS])
    assert length == 4
    assert [item.tolist() for item in result] == [item.tolist() for item in [*ROWS, *ROWS]]
    ways = [
        (crossing.value, crossing.how, crossing.source, crossing.target) for crossing in created.optimized.crossings
    ]
    assert ways == [("longer", "direct", "Other", "CpuRef")]
    assert created.optimized.copies == ()


def test_half_precision_leaves_the_elements_of_sequences_alone():
    def layers(network, x):
        doubled = network.add_addition_layer(x, x)
        held = network.add_sequence_construct_layer(doubled, x)
        return [held, network.add_sequence_at_layer(held, network.add_constant_layer(np.int64(0)))]

    options = ip.OptimizerOptions(reduce_fp32_to_fp16=True)
    held, first = model(TensorInfo((2,)), layers, options=options).run([np.float32([1, 2])])
    assert [item.dtype for item in [*held, first]] == [np.float32] * 3
    assert first.tolist() == [2, 4]


def test_sequences_are_shown_where_debug_layers_are_asked_for(capsys):
    options = ip.OptimizerOptions(debug=True)
    model(sequence(), lambda network, x: network.add_sequence_insert_layer(x, at(0)(network, x)), options=options)(ROWS)
    shown = capsys.readouterr().out
    assert '"elements": [{"layerName"' in shown
