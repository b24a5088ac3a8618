"""Caffe files of all versions are recognized, read with their weights, and refused with a clear error."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BindingError, InterposerError, ParseError, UnsupportedOperatorError
from interposer.frontends import caffe
from interposer.frontends.caffe.proto import message_like
from tests.damage import damaged_variants
from tests.frontends.caffe.build import caffemodel, random_array, weights_for

SMALL = """
name: "small"
input: "data"
input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
WEIGHTS = {"conv": weights_for("conv", [(4, 3, 3, 3), (4,)]), "ip": weights_for("ip", [(5, 36), (5,)])}
FOUR = "input_dim: 1 input_dim: 2 input_dim: 1 input_dim: 2"
IMAGE = random_array("image", (1, 3, 8, 8))


def small() -> bytes:
    return caffemodel(SMALL, WEIGHTS)


def result_of(*arguments, **options) -> np.ndarray:
    return ip.load(*arguments, backends=["CpuRef"], **options)(IMAGE)


def test_a_prototxt_is_loaded_with_its_weights(tmp_path: Path):
    (tmp_path / "deploy.prototxt").write_text(SMALL)
    (tmp_path / "small.caffemodel").write_bytes(small())
    model = ip.load(tmp_path / "deploy.prototxt", ["CpuRef"], weights=tmp_path / "small.caffemodel")
    assert list(model.inputs) == ["data"] and list(model.outputs) == ["prob"]
    np.testing.assert_allclose(model(IMAGE).sum(), 1, rtol=1e-5)
    np.testing.assert_array_equal(model(IMAGE), result_of(SMALL.encode(), weights=small()))


def test_the_weights_of_the_same_name_are_found_beside_a_prototxt(tmp_path: Path):
    (tmp_path / "net.prototxt").write_text(SMALL)
    with pytest.raises(ParseError, match=r"it has no weights; give the caffemodel that has them: weights="):
        ip.load(tmp_path / "net.prototxt")
    (tmp_path / "net.caffemodel").write_bytes(small())
    np.testing.assert_array_equal(result_of(tmp_path / "net.prototxt"), result_of(SMALL.encode(), weights=small()))


def test_new_weights_beside_a_prototxt_are_read_again(tmp_path: Path):
    (tmp_path / "net.prototxt").write_text(SMALL)
    (tmp_path / "net.caffemodel").write_bytes(small())
    before = ip.load(tmp_path / "net.prototxt")(IMAGE)
    other = {name: [array * 2 for array in arrays] for name, arrays in WEIGHTS.items()}
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(SMALL, other))
    assert not np.array_equal(ip.load(tmp_path / "net.prototxt")(IMAGE), before)


def test_a_caffemodel_alone_is_a_network():
    np.testing.assert_array_equal(result_of(small()), result_of(SMALL.encode(), weights=small()))


def test_weights_in_text_are_read():
    blob = "blobs { shape { dim: 2 } data: 0.5 data: -1 }"
    text = f'input: "x" {FOUR}\nlayer {{ name: "p" type: "PReLU" bottom: "x" top: "y" {blob} }}'
    model = ip.load(text.encode(), ["CpuRef"])
    assert model(np.float32([[[[-2, 2]], [[-2, 2]]]])).tolist() == [[[[-1, 2]], [[2, 2]]]]


def test_weights_that_are_not_packed_are_read():
    # field 5 of BlobProto as single numbers of 32 bits: the tag is 5 << 3 | 5
    numbers = b"".join(b"\x2d" + np.float32(n).tobytes() for n in (0.5, -1))
    shape = b"\x3a\x03\x0a\x01\x02"
    blob = shape + numbers
    layer = b"\x0a\x01p\x12\x05PReLU\x1a\x01x\x22\x01y\x3a" + bytes([len(blob)]) + blob
    net = b"\x1a\x01x\x42\x06\x0a\x04\x01\x02\x01\x02\xa2\x06" + bytes([len(layer)]) + layer
    model = ip.load(net, ["CpuRef"])
    assert model(np.float32([[[[-2, 2]], [[-2, 2]]]])).tolist() == [[[[-1, 2]], [[2, 2]]]]


V1 = """
name: "old"
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1
  convolution_param { num_output: 4 kernel_size: 3 } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "pool" type: POOLING bottom: "conv" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layers { name: "ip" type: INNER_PRODUCT bottom: "pool" top: "ip" inner_product_param { num_output: 5 } }
layers { name: "prob" type: SOFTMAX bottom: "ip" top: "prob" }
"""
V0 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "data" top: "pad" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 3 } bottom: "pad" top: "conv" }
layers { layer { name: "relu" type: "relu" } bottom: "conv" top: "conv" }
layers { layer { name: "norm" type: "lrn" local_size: 3 alpha: 0.5 beta: 0.75 } bottom: "conv" top: "norm" }
layers { layer { name: "pool" type: "pool" pool: AVE kernelsize: 2 stride: 2 } bottom: "norm" top: "pool" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.5 } bottom: "pool" top: "pool" }
layers { layer { name: "ip" type: "innerproduct" num_output: 5 biasterm: false } bottom: "pool" top: "ip" }
layers { layer { name: "prob" type: "softmax" } bottom: "ip" top: "prob" }
"""
SAME_AS_V0 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layer { name: "conv" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }
layer { name: "norm" type: "LRN" bottom: "c" top: "n" lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 } }
layer { name: "pool" type: "Pooling" bottom: "n" top: "p" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "i" inner_product_param { num_output: 5 bias_term: false } }
layer { name: "prob" type: "Softmax" bottom: "i" top: "prob" }
"""


def test_version_1_gives_what_version_2_gives():
    np.testing.assert_array_equal(result_of(V1.encode(), weights=small()), result_of(SMALL.encode(), weights=small()))


def test_version_0_gives_what_version_2_gives():
    weights = {"conv": WEIGHTS["conv"], "ip": weights_for("ip", [(5, 64)])}
    model = caffemodel(SAME_AS_V0, weights)
    np.testing.assert_array_equal(result_of(V0.encode(), weights=model), result_of(SAME_AS_V0.encode(), weights=model))


def test_blobs_of_version_1_with_four_dimensions_are_weights():
    net = message_like("NetParameter", {"layers": []})
    for name, arrays in WEIGHTS.items():
        layer = net.layers.add(name=name, type=4)
        for array in arrays:
            four = (1,) * (4 - array.ndim) + array.shape
            blob = layer.blobs.add(num=four[0], channels=four[1], height=four[2], width=four[3])
            blob.data.extend(array.ravel().tolist())
    weights = net.SerializeToString()
    np.testing.assert_array_equal(result_of(V1.encode(), weights=weights), result_of(SMALL.encode(), weights=small()))


TRAINING = """
layer { name: "train" type: "Data" top: "data" top: "label" include { phase: TRAIN } }
layer { name: "test" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "x" batch_size: 1 } }
layer { name: "drop" type: "Dropout" bottom: "data" top: "data" dropout_param { dropout_ratio: 0.5 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 5 }
  param { lr_mult: 1 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_a_network_for_training_loses_its_losses_and_asks_for_the_shape_of_its_data():
    weights = caffemodel(TRAINING, {"ip": weights_for("ip", [(5, 192), (5,)])})
    model = ip.load(TRAINING.encode(), ["CpuRef"], weights=weights, shapes={"data": (1, 3, 8, 8)})
    assert list(model.inputs) == ["data"] and list(model.outputs) == ["ip"]
    assert model(IMAGE).shape == (1, 5)
    later = ip.load(TRAINING.encode(), ["CpuRef"], weights=weights)
    np.testing.assert_array_equal(later(IMAGE), model(IMAGE))


def test_a_silenced_label_is_no_input_and_no_output():
    text = TRAINING + 'layer { name: "s" type: "Silence" bottom: "label" }'
    text += 'layer { name: "p" type: "Power" bottom: "ip" top: "p" } layer { name: "t" type: "Silence" bottom: "p" }'
    weights = caffemodel(TRAINING, {"ip": weights_for("ip", [(5, 192), (5,)])})
    model = ip.load(text.encode(), ["CpuRef"], weights=weights, shapes={"data": (1, 3, 8, 8)}, outputs=["ip"])
    assert list(model.inputs) == ["data"] and model(IMAGE).shape == (1, 5)


@pytest.mark.parametrize("kind", ["SmoothL1LossOHEM", "MultiLabelAccuracy", "CenterLoss"])
def test_losses_and_accuracies_of_forks_are_left_out(kind: str):
    text = TRAINING.replace("SoftmaxWithLoss", kind)
    weights = caffemodel(TRAINING, {"ip": weights_for("ip", [(5, 192), (5,)])})
    model = ip.load(text.encode(), ["CpuRef"], weights=weights, shapes={"data": (1, 3, 8, 8)})
    assert list(model.outputs) == ["ip"]


@pytest.mark.parametrize("rule", ["phase: TRAIN", 'stage: "deploy"'])
def test_data_only_for_training_is_an_input_if_no_other_layer_writes_it(rule: str):
    source = f'layer {{ name: "d" type: "Data" top: "data" include {{ {rule} }} }}'
    relu = 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }'
    model = ip.load(f"{source}\n{relu}".encode(), ["CpuRef"], shapes={"data": (1, 2)})
    assert list(model.inputs) == ["data"]
    declared = 'input: "data" input_shape { dim: 1 dim: 3 }'
    assert ip.load(f"{declared} {source} {relu}".encode(), ["CpuRef"]).inputs["data"].shape == (1, 3)


ZEROS = """
layer { name: "zeros" type: "DummyData" top: "zeros" top: "ones" dummy_data_param {
  shape { dim: 1 dim: 2 } data_filler { value: 0.5 } data_filler { type: "constant" value: 1 } } }
layer { name: "all" type: "Concat" bottom: "x" bottom: "zeros" bottom: "ones" top: "all" }
"""


def test_dummy_data_is_constant_beside_other_inputs():
    shaped = ZEROS.replace("shape {", "shape { dim: 1 dim: 1 } shape {")
    model = ip.load(('input: "x" input_shape { dim: 1 dim: 1 }' + shaped).encode(), ["CpuRef"])
    assert list(model.inputs) == ["x"] and model(np.float32([[3]])).tolist() == [[3, 0.5, 1, 1]]


def test_dummy_data_is_an_input_if_there_is_no_other_or_if_it_is_random():
    text = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 1 } } }'
    relu = 'layer { name: "r" type: "ReLU" bottom: "x" top: "r" }'
    assert list(ip.load(f"{text}\n{relu}".encode(), ["CpuRef"]).inputs) == ["x"]
    noise = text.replace("shape", 'data_filler { type: "gaussian" } shape').replace('"x"', '"z"')
    other = 'input: "x" input_shape { dim: 1 dim: 1 }'
    total = 'layer { name: "s" type: "Eltwise" bottom: "x" bottom: "z" top: "s" }'
    assert list(ip.load(f"{other} {noise} {total}".encode(), ["CpuRef"]).inputs) == ["x", "z"]


def test_dummy_data_with_too_few_shapes_is_refused():
    text = 'input: "x" input_shape { dim: 1 dim: 1 }' + ZEROS.replace('data_filler { type: "constant" value: 1 }', "")
    text = text.replace('top: "ones"', 'top: "ones" top: "more"').replace(
        "shape { dim: 1 dim: 2 }", "shape { } shape { }"
    )
    with pytest.raises(ParseError) as error:
        caffe.load(text.encode())
    assert str(error.value) == "layer[0] zeros: it has 3 tops, 2 shapes and 1 fillers"


SIAMESE = """
input: "a" input_shape { dim: 1 dim: 3 } input: "b" input_shape { dim: 1 dim: 3 }
layer { name: "left" type: "InnerProduct" bottom: "a" top: "left" inner_product_param { num_output: 2 }
  param { name: "w" lr_mult: 1 } param { name: "b" } }
layer { name: "right" type: "InnerProduct" bottom: "b" top: "right" inner_product_param { num_output: 2 }
  param { name: "w" } param { name: "b" } }
"""


def test_layers_share_weights_by_name():
    text = SIAMESE.replace('input_shape { dim: 1 dim: 3 } input: "b"', 'input: "b" input_shape { dim: 1 dim: 3 }')
    weights = caffemodel(text, {"left": weights_for("left", [(2, 3), (2,)])})
    left, right = ip.load(text.encode(), ["CpuRef"], weights=weights).run([np.ones((1, 3), np.float32)] * 2)
    np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"fc": [np.ones(3)], "fd": [np.ones(3)]},
         "weights: the file of weights has none for a layer of this name, but for fc, fd"),
        ({"ip": WEIGHTS["ip"]}, "weights: the file of weights has none for a layer of this name, but for ip"),
        ({"conv": WEIGHTS["conv"][:1]}, "bias: the file of weights has only 1 blobs for it"),
        ({}, "weights: the file of weights has no weights at all; weights= is the caffemodel, and not the prototxt"),
    ],
)  # fmt: skip
def test_weights_of_another_network_are_refused(weights: dict[str, list[np.ndarray]], expected: str):
    other = SMALL + "".join(f'layer {{ name: "{name}" type: "InnerProduct" }}' for name in weights)
    with pytest.raises(ParseError) as error:
        caffe.load(SMALL.encode(), weights=caffemodel(other, weights))
    assert str(error.value) == f"layer[0] conv: it has no {expected}"


def test_swapped_files_are_refused():
    with pytest.raises(ParseError) as error:
        caffe.load(small(), weights=SMALL.encode())
    assert str(error.value) == "the file has no weights, but the one of the network has; the two may be swapped"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
         "the file is a pointer of Git LFS, not a model; get the model with: git lfs pull"),
        (b"\n<!DOCTYPE html><html></html>", "the file is a web page, not a model; download the model itself"),
        (b"\x89HDF\r\n\x1a\n", "the file is in HDF5, as Keras writes models and weights (.h5), which is not read; "
         "load it in Keras, and write it with: model.export(folder)"),
        (b"PK\x03\x04" + bytes(range(60)), "the file is an archive; extract the model from it"),
        (bytes(257) + b"ustar\0", "the file is an archive; extract the model from it"),
    ],
)  # fmt: skip
def test_files_that_are_no_models_are_named(content: bytes, expected: str, tmp_path: Path):
    (tmp_path / "a.caffemodel").write_bytes(content)
    for read in (lambda: ip.load(content), lambda: ip.load(SMALL.encode(), weights=content)):
        with pytest.raises(ParseError) as error:
            read()
        assert str(error.value) == expected
    with pytest.raises(ParseError) as error:
        ip.load(tmp_path / "a.caffemodel")
    assert str(error.value) == f"{tmp_path / 'a.caffemodel'}: {expected}"


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + SMALL.encode(),
        "# \u4e2d\u6587\n".encode("gbk") + SMALL.encode(),
        SMALL.replace("\n", " ").encode(),
        SMALL.replace("\n", "\r\n").encode(),
        SMALL.replace('"', "'").encode(),
    ],
    ids=["byte order mark", "comment in GBK", "one line", "lines of Windows", "single quotes"],
)
def test_texts_of_other_editors_are_read(text: bytes):
    np.testing.assert_array_equal(result_of(text, weights=small()), result_of(SMALL.encode(), weights=small()))


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ("data: 0.5 data: -1", np.float32),
        ("double_data: 0.5\ndouble_data: -1.0e0", np.float64),
        ("data: 0.5 # the first\n data: -1", np.float32),
        ("data: [0.5, -1]", np.float32),
        ("data: 0.5f data: -1", np.float32),
        ("data : .5 data: -1.", np.float32),
        ("# data: 3\n data: 0.5 data: -1", np.float32),
        ("data: 0.5 data: -1 diff: 3 diff: 4", np.float32),
    ],
)
def test_numbers_in_text_have_many_forms(numbers: str, dtype: type):
    blob = f"blobs {{ shape {{ dim: 2 }} {numbers}\n }}"
    text = f'input: "x" {FOUR}\nlayer {{ name: "p" type: "PReLU" bottom: "x" top: "y" {blob} }}'
    model = ip.load(text.encode(), ["CpuRef"])
    assert model(np.float32([[[[-2, 2]], [[-2, 2]]]])).tolist() == [[[[-1, 2]], [[2, 2]]]]


def test_an_error_in_a_text_with_weights_names_its_line():
    text = f'input: "x" {FOUR}\nlayer {{ name: "p" blobs {{ data: 0.5\ndata: 1 }}\n type: PReLU }}'
    with pytest.raises(ParseError, match=r"text format: 4:8 : ' type: PReLU }': Expected string"):
        caffe.load(text.encode())


@pytest.mark.parametrize("data", ['"abc"', '"7"'])
def test_strings_in_the_place_of_numbers_are_refused(data: str):
    text = f'input: "x" {FOUR}\nlayer {{ name: "p" blobs {{ data: 0.5 }} blobs {{ data: {data} }} }}'
    with pytest.raises(ParseError, match="text format: 2:.*Couldn't parse float"):
        caffe.load(text.encode())


def test_an_onnx_model_in_text_is_no_caffe_network():
    text = b'ir_version: 8\ngraph {\n  node { input: "x"\n output: "y" op_type: "Relu" }\n input { name: "x" } }\n'
    with pytest.raises(ParseError, match="is no ONNX model: it imports no operator set"):
        ip.load(text)


@pytest.mark.parametrize(("number", "dtype"), [(0, "<f8"), (1, "<f4"), (2, "<f2")])
def test_weights_of_the_caffe_of_nvidia_are_read(number: int, dtype: str):
    text = f'input: "x" {FOUR}\nlayer {{ name: "p" type: "PReLU" bottom: "x" top: "y" }}'
    blob = {"shape": {"dim": [2]}, "raw_data_type": number, "raw_data": np.array([0.5, -1], dtype).tobytes()}
    layer = {"name": "p", "type": "PReLU", "blobs": [blob]}
    weights = message_like("NetParameter", {"layer": [layer]}).SerializeToString()
    model = ip.load(text.encode(), ["CpuRef"], weights=weights)
    assert model(np.float32([[[[-2, 2]], [[-2, 2]]]])).tolist() == [[[[-1, 2]], [[2, 2]]]]
    layer["blobs"] = [blob | {"raw_data_type": 3}]
    with pytest.raises(ParseError, match=r"layer\[0\] p, blobs\[0\]: it has \d+ bytes of raw_data_type 3$"):
        caffe.load(text.encode(), weights=message_like("NetParameter", {"layer": [layer]}).SerializeToString())


def test_outputs_are_blobs_or_layers_by_name():
    model = ip.load(SMALL.encode(), ["CpuRef"], weights=small(), outputs=["pool", "ip"])
    assert list(model.outputs) == ["pool", "ip"]
    with pytest.raises(BindingError, match=r"outputs: the network has no blob or layer 'pol'; did you mean 'pool'\?"):
        ip.load(SMALL.encode(), weights=small(), outputs=["pol"])


def test_a_layer_in_place_changes_what_later_layers_read_only():
    text = """
    input: "x" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 2
    layer { name: "before" type: "Power" bottom: "x" top: "before" power_param { scale: 2 } }
    layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
    layer { name: "after" type: "Power" bottom: "x" top: "after" power_param { scale: 3 } }
    """
    model = ip.load(text.encode(), ["CpuRef"])
    before, after = model.run([np.float32([[[[-1, 1]]]])])
    assert before.ravel().tolist() == [-2, 2] and after.ravel().tolist() == [0, 3]


def test_unknown_layers_are_counted_before_anything_is_read():
    text = (
        SMALL
        + """
    layer { name: "a" type: "Unheard" bottom: "prob" top: "a" }
    layer { name: "b" type: "Python" bottom: "a" top: "b" python_param { module: "my.layers" layer: "Mine" } }
    layer { name: "c" type: "Unheard" bottom: "b" top: "c" }
    """
    )
    with pytest.raises(UnsupportedOperatorError) as error:
        caffe.load(text.encode())
    assert str(error.value) == (
        "operators that are not supported:"
        "\n  - 1 x Python my.layers.Mine (layer[6] b)"
        "\n  - 2 x Unheard (layer[5] a, layer[7] c)"
    )
    assert list(caffe.load(text.encode(), weights=small(), outputs=["prob"]).graph.outputs)[0].name == "prob"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ('layer { name: "a" ', "the file is truncated or damaged, or is no Caffe model (text format: "),
        ('name: "x"', "the file has no layers; give the prototxt of the network, and not that of a solver"),
        ('layer { name: "a" type: "InnerProduct" blobs { data: 1 } }',
         "no layer gives an output, as in a file that has only weights; "
         "give the prototxt of the network, and this file as its weights"),
        ('layer { name: "a" type: "ReLU" bottom: "x" top: "y" }',
         "layer[0] a: it reads 'x', which no layer before it writes"),
        ('input: "x" input_dim: 1 layer { name: "a" type: "ReLU" bottom: "x" bottom: "x" top: "y" }',
         "layer[0] a: it has 2 bottoms; expected 1"),
        ('input: "x" input_shape { dim: 1 dim: 3 dim: 4 dim: 4 } '
         'layer { name: "a" type: "Pooling" bottom: "x" top: "y" '
         'pooling_param { pool: STOCHASTIC kernel_size: 2 } }',
         "layer[0] a: stochastic pooling is not supported; pooling by maximum (MAX) and average (AVE) is"),
        ('input: "x" input_shape { dim: 1 dim: 4 } layer { name: "a" type: "Reshape" bottom: "x" top: "y" '
         'reshape_param { shape { dim: 3 dim: -1 } } }', "layer[0] a: [1, 4] cannot have the shape [3, -1]"),
    ],
)  # fmt: skip
def test_bad_networks_are_refused(text: str, expected: str):
    with pytest.raises(ParseError) as error:
        caffe.load(text.encode())
    assert str(error.value).startswith(expected)


def test_weights_of_another_shape_are_refused():
    weights = caffemodel(SMALL, WEIGHTS | {"conv": weights_for("conv", [(4, 3, 5, 5), (4,)])})
    with pytest.raises(
        ParseError, match=r"layer\[0\] conv: its weights have the shape \[4, 3, 5, 5\]; expected \[4, 3, 3, 3\]"
    ):
        caffe.load(SMALL.encode(), weights=weights)


def test_weights_for_another_format_are_refused():
    text = b'graph "g" {\n  %x = Input : float32[2]\n  Output %x as "y"\n}\n'
    expected = "weights= is for Caffe networks and networks of OpenVINO's IR; this is a model of format 'text'"
    with pytest.raises(ip.errors.InvalidArgumentError, match=expected):
        ip.load(text, weights=b"x")


def test_a_model_is_pickled_with_its_weights(tmp_path: Path):
    (tmp_path / "a.prototxt").write_text(SMALL)
    (tmp_path / "b.caffemodel").write_bytes(small())
    model = ip.load(tmp_path / "a.prototxt", ["CpuRef"], weights=tmp_path / "b.caffemodel")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(IMAGE), model(IMAGE))


def check_damaged(content: bytes, weights: bytes | None, count: int, seed: int) -> None:
    for name, damaged in damaged_variants(content, count, seed):
        try:
            network = caffe.load(damaged) if weights is None else caffe.load(SMALL.encode(), weights=damaged)
            assert len(network) > 0, name
        except InterposerError:
            pass


@pytest.mark.parametrize(("what", "count"), [("text", 400), ("binary", 400), ("weights", 400)])
def test_damaged_files_are_refused_or_read(what: str, count: int):
    content = {"text": SMALL.encode(), "binary": small(), "weights": small()}[what]
    check_damaged(content, content if what == "weights" else None, count, 1)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "binary", "old", "oldest"])
def test_thousands_of_damaged_files_are_refused_or_read(what: str):
    content = {"text": SMALL.encode(), "binary": small(), "old": V1.encode(), "oldest": V0.encode()}[what]
    check_damaged(content, None, 5000, 2)
