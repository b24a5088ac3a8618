"""Plug-ins that answer what cannot be meant: every length, index, pointer and text is checked."""

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, optimize
from interposer.core.errors import BackendContractError, ExecutionError, UnsupportedLayerError
from interposer.ops import Multiplication, PreCompiled
from interposer.plugins.capi.abi.reading import read, read_text


def chain():
    """Return a network of three sums, one after the other."""
    network = Network("chain")
    x = network.add_input_layer(0, TensorInfo((4,)), name="x")
    a = network.add_addition_layer(x, x, name="a")
    b = network.add_addition_layer(a, x, name="b")
    network.add_output_layer(0, network.add_addition_layer(b, x, name="c"))
    return network


@pytest.fixture
def lying(backend, runtime_with):
    """Optimizes the chain for a plug-in that lies."""

    def lying(lie, *others, network=None, **how):
        liar = backend("liar.c", **how)
        runtime = runtime_with(liar)
        options = OptimizerOptions(model_options={"Liar": {"lie": lie}})
        return runtime, optimize(network or chain(), ["Liar", *others], runtime.device_spec, options)

    return lying


SUPPORT = {
    "too many verdicts": "query_support gave 4 verdicts for 3 layers",
    "a short stride": "the list of verdicts has the stride 8; expected a multiple of 8 from 48 to 65,536",
    "an odd stride": "the list of verdicts has the stride 51; expected a multiple of 8 from 48 to 65,536",
    "a huge stride": "the list of verdicts has the stride 1,048,576; expected a multiple of 8 from 48 to 65,536",
    "no verdicts": "the list of verdicts: the pointer is NULL, but 144 bytes were announced",
    "verdicts nowhere": "the list of verdicts: 144 bytes at 0x10 cannot be read",
    "an unknown verdict": "query_support gave the verdict 17 for layer 'a' (Addition); expected 0 to 3",
    "a release that is none": "which is no code",
    "a reason nowhere": "the reason for layer 'a' (Addition): 5 bytes at 0x10 cannot be read",
}
REASONS = {"a broken reason": "caf\ufffd and \ufffd\ufffd", "a bare no": "the quantization"}
ANSWERS = {
    "failing to optimize": "status 77: tired (at tensor 'x')",
    "a layer that is missing": "substitution 0 names layer 60; there are 3",
    "a negative layer": "substitution 0 names layer -1; there are 3",
    "no layers": "substitution 0 has no layers",
    "too many layers": "the layers of substitution 0: 1,000 numbers; at most 3 can be meant",
    "layers nowhere": "the layers of substitution 0: 24 bytes at 0x18 cannot be read",
    "too many substitutions": "1,000 substitutions for 3 layers",
    "overlapping substitutions": "substitution 1 names layer 0, 'a' (Addition), which is named already",
    "failed and substituted": "failure 0 names layer 0, 'a' (Addition), which is named already",
    "parts in a cycle": "substitutions that depend on each other in a cycle",
    "a replacement with an unknown layer": "unknown operator 'Multiplicatoin'; did you mean 'Multiplication'?",
    "a replacement with an unknown attribute": "layer 0 (thrice): Multiplication has no attribute 'mood'",
    "a replacement with another type": "its input 0 is int8[4], but the tensor is float32[4]",
    "a replacement with a constant of the wrong size": "constant 0 has 3 bytes, but tensor 2 is float32[4]",
    "a replacement with a rank of a hundred": "the shape of tensor 1: 100 numbers; at most 8 can be meant",
    "a replacement with a negative rank": "tensor 1 has the rank -1",
    "a replacement with a graph without size": "has struct_size 8; expected 136 to 65,536",
    "a replacement with a cycle of tensors": "layer 0 (thrice) takes tensor 1, which nothing before it gives",
    "a replacement with two inputs for one": "it has 2 inputs and 1 outputs; expected 1 and 1",
    "a replacement with a million layers": "it has 2,097,152 layers",
    "a replacement with a graph nowhere": "the replacement in substitution 0: 8 bytes at 0x10 cannot be read",
    "a replacement with other outputs": "a replacement for the tensors 'x'; those that leave the part are 'a'",
    "a replacement with an output twice": "the outputs of substitution 0 name a tensor twice",
    "a replacement with an input that is missing": "the inputs of substitution 0 name tensor 99; there are 4",
}
COMPILING = {
    "a long error": f"{'x' * 4096}... (1,000,000 bytes)",
    "an error past its end": "compile wrote past the end of the error's text",
    "a broken error": "out of memory: caf\ufffd",
    "a silent error": "device lost, without a message (error 42)",
    "a workspace without end": "asks for a workspace of 1,152,921,504,606,846,976 bytes",
    "an odd alignment": "a workspace of 0 bytes, aligned to 96",
}


@pytest.mark.parametrize("lie", [*SUPPORT, *REASONS, *ANSWERS, *COMPILING])
def test_what_cannot_be_meant_is_a_refusal_that_says_so(lie, lying):
    expected = (SUPPORT | REASONS | ANSWERS | COMPILING)[lie]
    with pytest.raises(UnsupportedLayerError) as caught:
        lying(lie)
    assert expected in str(caught.value)


def test_the_network_goes_to_the_next_backend_then(lying):
    runtime, optimized = lying("parts in a cycle", "CpuRef")
    network_id = runtime.load_network(optimized)
    assert runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3, 4])})[0].tolist() == [4, 8, 12, 16]


def test_a_replacement_of_another_shape_breaks_the_contract(lying):
    with pytest.raises(BackendContractError, match=r"Multiplication.*does not|is replaced by|declared"):
        lying("a replacement with another shape")


def test_a_replacement_is_put_in_place(lying):
    _, optimized = lying("a replacement")
    kinds = [type(layer.op) for layer in optimized.graph if layer.backend == "Liar"]
    assert Multiplication in kinds
    [created] = [layer for layer in optimized.graph if isinstance(layer.op, Multiplication)]
    assert created.inputs[1].constant.tolist() == [3, 3, 3, 3]


def test_layers_that_optimize_leaves_alone_stay(lying):
    _, optimized = lying("untouched")
    assert [layer.kind for layer in optimized.graph].count("Addition") == 3


def test_layers_that_optimize_gives_back_go_to_the_next_backend(lying):
    _, optimized = lying("the last layer failed", "CpuRef")
    assert [placement.backend for placement in optimized.placements if placement.layer in "abc"] == [
        "Liar",
        "Liar",
        "CpuRef",
    ]
    assert [type(layer.op) for layer in optimized.graph].count(PreCompiled) == 1
    [refusal] = optimized.refusals
    assert (refusal.reasons, refusal.stage) == (("no room",), "optimize")


# --- running ----------------------------------------------------------------------------------------------------------


def run(runtime, optimized, values=(1, 2, 3, 4)):
    return runtime.enqueue_workload(runtime.load_network(optimized), {0: np.float32(values)})[0]


def test_a_run_that_fails_says_why(lying):
    with pytest.raises(ExecutionError, match="layer 'PreCompiled:a'.*failed on backend Liar: execute: it broke"):
        run(*lying("a failing run"))


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ("outside", "execute wrote outside of output 0, at byte 18 of 16"),
        ("before", "execute wrote outside of output 0, at byte -1 of 16"),
        ("an input", "execute wrote to input 0"),
    ],
)
def test_checking_mode_finds_what_is_written_where_it_must_not_be(lie, text, lying):
    with pytest.raises(ExecutionError, match=text):
        run(*lying(lie, checking=True))


def test_checking_mode_can_be_asked_for_by_the_environment(lying, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CHECK_BACKENDS", "yes")
    with pytest.raises(ExecutionError, match="execute wrote outside of output 0"):
        run(*lying("outside"))


def test_checking_mode_leaves_honest_plug_ins_alone(lying):
    assert run(*lying("", checking=True)).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ("resizing another", "resize was called for output 9; there are 1"),
        ("resizing to another rank", "resize gave output 0, int64.*, the rank 1"),
        ("resizing below zero", r"resize gave output 0, int64.*, the shape \[1, -2\]"),
        ("resizing nowhere", "the shape that resize was called with: 16 bytes at 0x10 cannot be read"),
    ],
)
def test_resize_is_not_taken_at_its_word(lie, text, lying):
    network = Network()
    x = network.add_input_layer(0, TensorInfo((4,)))
    network.add_output_layer(0, network.add_non_zero_layer(x))
    with pytest.raises(ExecutionError, match=text):
        run(*lying(lie, network=network))


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "size", "text"),
    [
        (None, 1, "it: the pointer is NULL, but 1 bytes were announced"),
        (1 << 63, 8, "it: 8 bytes at 0x8000000000000000 cannot be read"),
        ((1 << 64) - 1, 8, "it: 8 bytes at 0xffffffffffffffff cannot be meant"),
        (4096, 1 << 40, "it: 1,099,511,627,776 bytes at 0x1000 cannot be meant"),
    ],
)
def test_memory_that_is_not_there_is_an_error(address, size, text):
    with pytest.raises(BackendContractError) as caught:
        read(address, size, "it")
    assert str(caught.value) == text


def test_an_address_is_code_data_or_nothing():
    import ctypes

    from interposer.plugins.capi.abi.reading import code_fault

    function = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value
    number = ctypes.c_int64()
    data = ctypes.addressof(number)
    for _ in range(2):  # the second time without reading the memory map
        assert code_fault(function) is None
        assert code_fault(data) == f"is {data:#x}, which is no code"
        assert code_fault(8) == "is 0x8, where there is nothing"
        assert code_fault(None) == "is NULL"


def test_a_text_is_cut_at_a_length_that_can_be_meant():
    import ctypes

    from interposer.plugins.capi.abi.reading import MAX_TEXT
    from interposer.plugins.capi.abi.structs import String

    long = ctypes.create_string_buffer(b"y" * (MAX_TEXT + 5))
    assert len(read_text(String(ctypes.addressof(long), MAX_TEXT + 5), "it")) == MAX_TEXT
