"""What the reader of Arm NN files does with the versions and the oddities of the format, on files made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import DamagedFileError, ParseError, UnsupportedOperatorError
from interposer.frontends import armnn

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.damage import damaged_variants
from tests.frontends.armnn.build import Table, const, encode, graph, info, layer, one_layer
from tests.frontends.armnn.test_armnn_recorded import outcome

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3)).astype(np.float32)
RELU = {"activationFunction": 3}


def relu(**versions: int) -> Table:
    return one_layer("Activation", [info([2, 3])], [info([2, 3])], descriptor=RELU, versions=versions)


def results(root: Table, *arrays: Any) -> list[Any]:
    network = armnn.load(encode(root))
    return ip.load(network, ["CpuRef"]).run({f"x{number}": array for number, array in enumerate(arrays)})


def refusal(root: Table) -> str:
    with pytest.raises(ParseError) as caught:
        armnn.load(encode(root))
    return str(caught.value)


class TestVersions:
    def test_a_file_is_read_with_and_without_the_file_identifier(self) -> None:
        for mark in (None, b"ARMN"):
            model = ip.load(encode(relu(), mark=mark), ["CpuRef"])
            np.testing.assert_array_equal(model.run([X])[0], np.maximum(X, 0))

    def test_ids_are_binding_ids_or_in_older_files_the_indices_of_layers(self) -> None:
        old = relu(bindingIdsScheme=0) | {"inputIds": [0], "outputIds": [2]}
        for root in (relu(), old, old | {"featureVersions": {}}):
            np.testing.assert_array_equal(results(root, X)[0], np.maximum(X, 0))
        assert refusal(old | {"outputIds": [0]}).endswith("outputIds: there is no layer of type Output with the id 0")

    @pytest.mark.parametrize("scheme", [0, 1])
    def test_weights_of_depthwise_convolutions_have_two_layouts(self, scheme: int) -> None:
        images = RNG.normal(size=(1, 4, 4, 2)).astype(np.float32)
        old = RNG.normal(size=(3, 2, 2, 2)).astype(np.float32)  # M, I, H, W
        weights = old if not scheme else old.transpose(2, 3, 1, 0).reshape(1, 2, 2, 6)
        root = one_layer(
            "DepthwiseConvolution2d", [info(images.shape)], [info([1, 3, 3, 6])], weights=const(weights),
            descriptor={"strideX": 1, "strideY": 1, "dataLayout": 0}, versions={"weightsLayoutScheme": scheme},
        )  # fmt: skip
        expected = np.zeros((1, 3, 3, 6), np.float32)
        for y, x, channel in np.ndindex(3, 3, 6):
            window = images[0, y : y + 2, x : x + 2, channel // 3]
            expected[0, y, x, channel] = (window * old[channel % 3, channel // 3]).sum()
        np.testing.assert_allclose(results(root, images)[0], expected, rtol=1e-5, atol=1e-6)

    def test_weights_and_biases_may_be_inputs(self) -> None:
        weights, bias = RNG.normal(size=(3, 4)).astype(np.float32), np.float32([1, 2, 3, 4])
        layers = [
            layer("Input", 0, outputs=[info([2, 3])], name="x0"),
            layer("Constant", 1, outputs=[info([3, 4])], input=const(weights)),
            layer("Constant", 2, outputs=[info([4])], input=const(bias)),
            layer("FullyConnected", 3, [(0, 0), (1, 0), (2, 0)], [info([2, 4])], descriptor={"biasEnabled": True}),
            layer("Output", 4, [(3, 0)]),
        ]
        root = graph(layers, [0], [0], constantTensorsAsInputs=1)
        np.testing.assert_allclose(results(root, X)[0], X @ weights + bias, rtol=1e-5)

    def test_one_output_of_a_sequence_lstm_is_the_sequence(self) -> None:
        params = {
            name: const(RNG.normal(size=(2, 3 if "inputTo" in name else 2) if "Weights" in name else (2,)).astype("f4"))
            for name in (
                "inputToForgetWeights", "inputToCellWeights", "inputToOutputWeights", "recurrentToForgetWeights",
                "recurrentToCellWeights", "recurrentToOutputWeights", "forgetGateBias", "cellBias", "outputGateBias",
            )
        }  # fmt: skip
        infos = [info([1, 4, 3]), info([1, 2]), info([1, 2])]
        fields = {"descriptor": {"activationFunc": 4}, "inputParams": params}
        x, zero = RNG.normal(size=(1, 4, 3)).astype("f4"), np.zeros((1, 2), "f4")
        one = one_layer("UnidirectionalSequenceLstm", infos, [info([1, 4, 2])], **fields)
        three = one_layer("UnidirectionalSequenceLstm", infos, [*infos[1:], info([1, 4, 2])], **fields)
        [sequence], (state, _, again) = results(one, x, zero, zero), results(three, x, zero, zero)
        np.testing.assert_array_equal(sequence, again)
        np.testing.assert_array_equal(sequence[:, -1], state)

    def test_an_overridden_input_slot_sees_another_shape(self) -> None:
        root = relu()
        [slot] = root["layers"][1]["layer"][1]["base"]["inputSlots"]
        slot |= {"isOverridden": True, "overriddenTensorInfo": info([3, 2])}
        root["layers"][1]["layer"][1]["base"]["outputSlots"][0]["tensorInfo"] = info([3, 2])
        np.testing.assert_array_equal(results(root, X)[0], np.maximum(X, 0).reshape(3, 2))

    def test_a_layer_of_a_later_version_is_refused_with_its_place(self) -> None:
        data = bytearray(encode(relu()))
        place = next(at for at in range(len(data)) if data[at] == 1 and outcome_of(data, at) == "UnsupportedOperator")
        data[place] = 250
        with pytest.raises(UnsupportedOperatorError, match=r"layer type 250.*layers\[1\]"):
            armnn.load(bytes(data))


def outcome_of(data: bytearray, place: int) -> str:
    changed = bytearray(data)
    changed[place] = 250
    try:
        armnn.load(bytes(changed))
    except UnsupportedOperatorError:
        return "UnsupportedOperator"
    except ParseError:
        return "refused"
    return "read"


class TestMeaning:
    def test_the_value_of_a_border_is_a_quantized_one(self) -> None:
        x = np.uint8([[7, 9]])
        item = info([1, 2], "QAsymmU8", 0.5, 3)
        root = one_layer(
            "Pad", [item], [info([1, 4], "QAsymmU8", 0.5, 3)], descriptor={"padList": [0, 0, 1, 1], "padValue": 5.0}
        )
        assert results(root, x)[0].tolist() == [[5, 7, 9, 5]]

    def test_a_scalar_has_rank_0_and_a_mean_of_everything_may_have_the_shape_1(self) -> None:
        scalar = info([1], dimensionality=2)
        network = armnn.load(encode(one_layer("Floor", [scalar], [scalar])))
        assert network.graph.inputs[0].output.known.rank == 0
        [mean] = results(one_layer("Mean", [info([2, 3])], [info([1])]), X)
        np.testing.assert_allclose(mean, [X.mean()], rtol=1e-6)

    def test_strides_of_zero_pool_one_window(self) -> None:
        images = RNG.normal(size=(1, 4, 5, 2)).astype("f4")
        root = one_layer(
            "Pooling2d", [info(images.shape)], [info([1, 1, 1, 2])],
            descriptor={"poolType": 1, "poolWidth": 5, "poolHeight": 4, "paddingMethod": 1},
        )  # fmt: skip
        np.testing.assert_allclose(results(root, images)[0], images.mean((1, 2), keepdims=True), rtol=1e-5)

    def test_a_begin_after_the_end_of_an_axis_is_its_last_element(self) -> None:
        fields = {"begin": [0, 9], "end": [2, 9], "stride": [1, 1]}
        root = one_layer("StridedSlice", [info([2, 3])], [info([2, 1])], descriptor=fields)
        np.testing.assert_array_equal(results(root, X)[0], X[:, 2:])

    def test_a_cast_of_a_quantized_tensor_gives_its_real_values(self) -> None:
        root = one_layer("Cast", [info([3], "QAsymmU8", 0.5, 10)], [info([3])])
        assert results(root, np.uint8([10, 12, 9]))[0].tolist() == [0.0, 1.0, -0.5]

    def test_concatenated_inputs_may_be_in_another_order(self) -> None:
        views = [{"data": [0, 3]}, {"data": [0, 0]}]
        fields = {"concatAxis": 1, "numViews": 2, "numDimensions": 2, "viewOrigins": views}
        root = one_layer("Concat", [info([2, 3])] * 2, [info([2, 6])], descriptor=fields)
        np.testing.assert_array_equal(results(root, X, -X)[0], np.concatenate([-X, X], 1))
        views[0] = {"data": [0, 4]}
        assert refusal(root).endswith("one of its views begins at 4; expected 3, where the one before ends")

    def test_a_layer_that_is_named_like_an_output_gets_its_type_as_suffix(self) -> None:
        root = relu()
        root["layers"][1]["layer"][1]["base"]["layerName"] = "out0"
        network = armnn.load(encode(root))
        assert [item.name for item in network.graph] == ["x0", "out0:Activation", "out0"]


class TestRefusals:
    def test_types_and_shapes_must_be_those_that_the_layer_gives(self) -> None:
        root = one_layer("Activation", [info([2, 3])], [info([3, 2])], descriptor=RELU)
        assert refusal(root) == (
            "layers[1] Activation 'y': output slot 0 is declared with shape [3, 2], but the layer gives [2, 3]"
        )

    def test_a_connection_must_lead_to_an_output(self) -> None:
        root = relu()
        root["layers"][1]["layer"][1]["base"]["inputSlots"][0]["connection"] = (0, 1)
        assert "input slot 0 reads output 1 of layers[0] Input 'x0', which does not exist" in refusal(root)

    def test_a_layer_must_not_depend_on_itself(self) -> None:
        root = relu()
        root["layers"][1]["layer"][1]["base"]["inputSlots"][0]["connection"] = (1, 0)
        assert refusal(root).endswith("layers[1] Activation 'y': it depends on its own results")

    def test_a_file_without_layers_is_damaged(self) -> None:
        with pytest.raises(DamagedFileError, match="it has no layers"):
            armnn.load(encode({}))

    def test_damaged_files_are_run_or_refused(self) -> None:
        weights = const(RNG.normal(size=(3, 4)).astype("f4"))
        root = one_layer("FullyConnected", [info([2, 3])], [info([2, 4])], weights=weights, descriptor={})
        outcomes = [outcome(data) for _, data in damaged_variants(encode(root), 500, seed=4)]
        assert outcomes.count("refused") > 300
