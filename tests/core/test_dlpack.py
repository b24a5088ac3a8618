"""Arrays of other libraries are taken over where they lie."""

from __future__ import annotations

import array
import gc
import re

import numpy as np
import pytest

import interposer as ip
from interposer.core.dlpack import Exported, as_array, shared_array
from interposer.core.errors import BindingError, MemoryImportError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make exports")


def double() -> ip.Network:
    network = ip.Network("double")
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return network


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"]
)
def test_a_tensor_is_seen_where_it_lies(name):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    result = as_array(tensor)
    assert result.ctypes.data == tensor.data_ptr()
    assert (result.shape, result.dtype.name) == ((2, 3), name)
    np.testing.assert_array_equal(result.astype(np.float32), tensor.float().numpy())


def test_rows_with_gaps_and_turned_ones_are_seen_as_they_are():
    tensor = torch.arange(24).reshape(4, 6).to(torch.bfloat16).T[1:, ::2]
    result = as_array(tensor)
    assert result.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(result.astype(np.float32), tensor.float().numpy())


def test_a_tensor_whose_memory_has_the_negated_elements_is_copied_and_not_shared():
    tensor = torch.complex(torch.zeros(3), torch.arange(3.0)).conj().imag
    assert tensor.is_neg()
    np.testing.assert_array_equal(as_array(tensor), [0, -1, -2])
    with pytest.raises(BindingError, match=re.escape("its memory has the negated elements; call resolve_neg() first")):
        shared_array(tensor)


def test_the_memory_lives_as_long_as_the_array():
    result = as_array(torch.full((1000,), 3.0, dtype=torch.bfloat16))
    gc.collect()
    _ = [torch.zeros(1000, dtype=torch.bfloat16) for _ in range(10)]
    assert (result.astype(np.float32) == 3).all()


def test_nothing_is_left_of_a_tensor_without_elements():
    assert as_array(torch.empty(0, 3, dtype=torch.bfloat16)).shape == (0, 3)


WRONG = {
    "gradient": (lambda: torch.ones(2, 3, requires_grad=True) * 2, "cannot be made into an array: Can't call numpy()"),
    "device": (lambda: torch.ones(2, 3, device="meta"), "cannot be made into an array: Unknown device type meta"),
    "shape": (lambda: torch.ones(3, 2), "has shape [3, 2]; expected [2, 3]"),
    "type": (lambda: torch.ones(2, 3, dtype=torch.complex64), "is complex64; expected float32; convert it explicitly"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.needs_cpuref
def test_a_tensor_that_cannot_be_taken_is_named(name):
    tensor, text = WRONG[name]
    with ip.load(double()) as model, pytest.raises(BindingError) as caught:
        model.run([tensor()])
    assert str(caught.value).startswith(f"input 'x' {text}")


@pytest.mark.needs_cpuref
def test_a_model_reads_a_tensor_and_gives_one_back_without_a_copy():
    tensor = torch.arange(6.0).reshape(2, 3)
    with ip.load(double()) as model:
        result = model(tensor)
    back = torch.from_dlpack(result)
    assert back.data_ptr() == result.ctypes.data
    assert torch.equal(back, 2 * tensor)


@pytest.mark.needs_cpuref
def test_what_has_the_buffer_protocol_is_an_array_too():
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((4,), "uint8"), name="x")
    network.add_output_layer(0, network.add_maximum_layer(x, x))
    with ip.load(network) as model:
        assert model.run([array.array("B", [1, 2, 3, 4])])[0].tolist() == [1, 2, 3, 4]
        assert model.run([memoryview(b"\x05\x06\x07\x08")])[0].tolist() == [5, 6, 7, 8]


def test_a_device_is_named():
    class Elsewhere:
        def __dlpack_device__(self):
            return 2, 1

        def __dlpack__(self):
            raise AssertionError

    with pytest.raises(BindingError, match=r"^it cannot be made into an array: it is on device 1 \(CUDA\); copy it"):
        as_array(Elsewhere())


TYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", TYPES)
def test_memory_is_shared_in_both_directions(name):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    array_ = shared_array(tensor)
    assert array_.ctypes.data == tensor.data_ptr()
    assert array_.flags.writeable
    back = torch.from_dlpack(Exported(array_))
    assert (back.data_ptr(), back.dtype, back.shape) == (tensor.data_ptr(), tensor.dtype, tensor.shape)
    del tensor, array_
    gc.collect()
    assert back.float().tolist()[0] == [0, 1, 1 if name == "bool" else 2]


def test_turned_tensors_are_shared_as_they_are():
    tensor = torch.arange(24.0).reshape(4, 6).T[1:, ::2]
    result = shared_array(tensor)
    assert result.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(result, tensor.numpy())
    assert torch.equal(torch.from_dlpack(Exported(result)), tensor)


def test_what_only_a_copy_could_be_made_of_is_not_shared():
    wrong = {
        "it cannot be used without a copy: Can't export tensors that require gradient": torch.ones(
            2, requires_grad=True
        ),
        "it cannot be used without a copy: a list has neither __dlpack__ nor the buffer protocol": [1.0],
        "it cannot be used without a copy: its type is not supported: DLPack code 5, 64 bits": torch.ones(
            2, dtype=torch.complex64
        ),
    }
    for text, value in wrong.items():
        with pytest.raises(BindingError) as caught:
            shared_array(value)
        assert str(caught.value).startswith(text)


def test_what_cannot_be_exported_is_refused():
    import ml_dtypes

    with pytest.raises(BufferError, match="DLPack has no type code for int4"):
        Exported(np.zeros(2, ml_dtypes.int4)).__dlpack__()
    with pytest.raises(BufferError, match=r"not on device \(2, 0\)"):
        Exported(np.zeros(2)).__dlpack__(dl_device=(2, 0))


def test_read_only_memory_stays_read_only():
    frozen = np.zeros(3, ip.DataType.BFLOAT16.numpy)
    frozen.flags.writeable = False
    assert not shared_array(Exported(frozen)).flags.writeable


@pytest.mark.needs_cpuref
def test_a_model_reads_and_writes_tensors_where_they_lie():
    x, y = torch.arange(6.0).reshape(2, 3), torch.zeros(2, 3)
    with ip.load(double()) as model:
        inputs, outputs = model.import_inputs([x]), model.import_outputs([y])
        assert inputs.arrays["x"].ctypes.data == x.data_ptr()
        assert outputs.arrays["y"].ctypes.data == y.data_ptr()
        for _ in range(2):
            x += 1
            [result] = model.run(inputs, outputs)
            assert torch.equal(y, 2 * x)
            assert result.ctypes.data == y.data_ptr()
        y.zero_()
        model.run([x], [y])
        assert torch.equal(y, 2 * x)
        model.run([x.T.contiguous().T], [torch.empty(3, 2).T])
        with pytest.raises(MemoryImportError, match=r"strides of \[1, 2\] elements"):
            model.import_inputs([x.T.contiguous().T])
        with pytest.raises(BindingError, match="Can't export tensors that require gradient"):
            model.run([x], [torch.zeros(2, 3, requires_grad=True)])


@pytest.mark.needs_cpuref
def test_an_output_of_a_rare_type_is_taken_over_without_a_copy():
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2, 3), "bfloat16"), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    tensor = torch.arange(6.0).reshape(2, 3).to(torch.bfloat16)
    with ip.load(network) as model:
        [result] = model.run([tensor])
    back = torch.from_dlpack(Exported(result))
    assert back.data_ptr() == result.ctypes.data
    assert torch.equal(back, 2 * tensor)
