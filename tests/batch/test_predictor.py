"""A predictor maps a batch of columns to the outputs of a model, and can be sent to other processes."""

import collections
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.batch import Predictor
from interposer.errors import BindingError, InvalidArgumentError, LoadError, ParseError
from interposer.ops import ActivationFunction, ReduceOperation


def affine(batch: int | str | None, width: int = 3) -> ip.Network:
    """Return a network that doubles its rows, and has a second output of their activations."""
    network = ip.Network("affine")
    x = network.add_input_layer(0, ip.TensorInfo((batch, width)), name="x")
    doubled = network.add_addition_layer(x, x, name="doubled")
    network.add_output_layer(0, doubled, name="y")
    network.add_output_layer(1, network.add_activation_layer(x, function=ActivationFunction.RELU), name="z")
    return network


@pytest.fixture
def saved(tmp_path: Path):
    """Return a function that saves a network in the text form, and returns its path."""

    def save(network: ip.Network, name: str = "net.txt") -> Path:
        path = tmp_path / name
        path.write_text(str(network), encoding="utf-8")
        return path

    return save


ROWS = np.arange(21, dtype=np.float32).reshape(7, 3) - 5


@pytest.mark.parametrize("batch", [None, 1, 2, 7, 16])
@pytest.mark.parametrize("size", [None, 1, 4])
def test_rows_are_divided_into_runs_of_the_batch_size_and_put_together_in_order(saved, batch, size):
    columns = Predictor(saved(affine(batch)), batch_size=size)({"x": ROWS})
    assert list(columns) == ["y", "z"]
    np.testing.assert_array_equal(columns["y"], 2 * ROWS)
    np.testing.assert_array_equal(columns["z"], np.maximum(ROWS, 0))


@pytest.mark.parametrize(
    "column",
    [ROWS, ROWS.tolist(), list(ROWS), ROWS.astype(np.float64), np.asfortranarray(ROWS), ROWS[:, np.newaxis]],
    ids=["array", "lists", "arrays", "float64", "transposed", "batches of one"],
)
def test_a_column_may_be_an_array_or_a_list_of_rows(saved, column):
    np.testing.assert_array_equal(Predictor(saved(affine(2)))({"x": column})["y"], 2 * ROWS)


def test_a_column_of_objects_has_an_array_for_each_row(saved):
    column = np.empty(7, object)
    column[:] = list(ROWS)
    np.testing.assert_array_equal(Predictor(saved(affine(None)))({"x": column})["y"], 2 * ROWS)


def test_read_only_columns_are_accepted_and_not_changed(saved):
    column = ROWS.copy()
    column.flags.writeable = False
    np.testing.assert_array_equal(Predictor(saved(affine(4)))({"x": column})["y"], 2 * ROWS)
    np.testing.assert_array_equal(column, ROWS)


@pytest.mark.parametrize("batch", [None, 4])
def test_a_batch_without_rows_gives_columns_without_rows(saved, batch):
    columns = Predictor(saved(affine(batch)), keep=["id"])({"x": [], "id": []})
    assert columns["y"].shape == (0, 3)
    assert columns["id"] == []


def test_columns_and_outputs_are_renamed_and_other_columns_kept(saved):
    predict = Predictor(saved(affine(None)), inputs={"x": "pixels"}, outputs={"twice": "y", "again": "y"}, keep=["id"])
    columns = predict({"pixels": ROWS, "id": list("abcdefg"), "unused": np.zeros(7)})
    assert list(columns) == ["id", "twice", "again"]
    assert columns["id"] == list("abcdefg")
    np.testing.assert_array_equal(columns["twice"], 2 * ROWS)
    np.testing.assert_array_equal(columns["again"], 2 * ROWS)


def test_inner_values_can_be_outputs(saved):
    np.testing.assert_array_equal(Predictor(saved(affine(2)), outputs="doubled")({"x": ROWS})["doubled"], 2 * ROWS)


def test_a_single_column_fits_a_single_input_of_any_name(saved):
    np.testing.assert_array_equal(Predictor(saved(affine(2)), keep=["id"])({"id": range(7), "a": ROWS})["y"], 2 * ROWS)


def test_a_model_without_a_batch_dimension_runs_once_for_each_row(saved):
    network = ip.Network("sum")
    x = network.add_input_layer(0, ip.TensorInfo((4, 3)), name="x")
    total = network.add_reduce_layer(x, operation=ReduceOperation.SUM, axis=(0, 1))
    network.add_output_layer(0, total, name="y")
    rows = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    np.testing.assert_array_equal(Predictor(saved(network))({"x": rows})["y"], rows.sum((1, 2)))


def test_rows_of_the_whole_shape_are_single_runs_although_the_first_dimension_could_be_a_batch(saved):
    network = ip.Network("flat")
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    np.testing.assert_array_equal(Predictor(saved(network))({"x": ROWS})["y"], 2 * ROWS)


def test_arrays_gives_one_output_as_an_array_and_several_by_name(saved):
    path = saved(affine(None))
    np.testing.assert_array_equal(Predictor(path, outputs=["y"]).arrays(ROWS), 2 * ROWS)
    assert list(Predictor(path).arrays(ROWS)) == ["y", "z"]
    with pytest.raises(BindingError, match=r"^2 arrays were given; the model has 1 inputs \('x'\)$"):
        Predictor(path).arrays(ROWS, ROWS)


def test_a_pickled_predictor_loads_the_same_file(saved):
    predict = Predictor(saved(affine(2)), backends=["CpuRef"], batch_size=3, keep=["id"])
    predict.model.run([ROWS[:3]])
    copy = pickle.loads(pickle.dumps(predict))
    np.testing.assert_array_equal(copy({"x": ROWS, "id": ROWS})["y"], 2 * ROWS)
    assert set(copy.model.optimized.backends) == {"CpuRef"}


def test_a_predictor_that_another_version_has_pickled_is_refused(saved):
    predict = Predictor(saved(affine(2)))
    state = {name: value for name, value in predict.__getstate__().items() if name != "form"}
    other = Predictor.__new__(Predictor)
    with pytest.raises(
        LoadError, match="^the predictor was pickled by another version of interposer; create it again$"
    ):
        other.__setstate__(state)


def test_a_predictor_of_a_saved_network_is_pickled_by_path_and_maps_the_file(tmp_path):
    path = tmp_path / "net.ipn"
    weights = np.random.default_rng(0).standard_normal((700, 512), np.float32)
    network = ip.Network("wide")
    x = network.add_input_layer(0, ip.TensorInfo(("batch", 700)), name="x")
    network.add_output_layer(0, network.add_fully_connected_layer(x, network.add_constant_layer(weights)), name="y")
    with ip.load(network, ["CpuRef"]) as model:
        model.save(path, shapes=[{"batch": 4}])
    pickled = pickle.dumps(Predictor(path, batch_size=4))
    assert len(pickled) < 1000
    predict = pickle.loads(pickled)
    rows = np.random.default_rng(1).standard_normal((7, 700), np.float32)
    np.testing.assert_allclose(predict({"x": rows})["y"], rows @ weights, rtol=1e-4, atol=1e-4)
    assert predict.model.memory().mapped_constants >= weights.nbytes


def test_the_variant_of_a_saved_network_for_the_batch_size_runs(tmp_path, caplog):
    path = tmp_path / "net.ipn"
    with ip.load(affine(None), ["CpuRef"]) as model:
        model.save(path, shapes=[{"x": (1, 3)}, {"x": (4, 3)}])
    predict = Predictor(path, batch_size=4)
    np.testing.assert_array_equal(predict({"x": ROWS})["y"], 2 * ROWS)
    assert [layer.output.known.shape for layer in predict.model.optimized.inputs] == [(4, 3)]
    assert not caplog.records


def test_a_saved_network_with_another_content_is_refused_by_the_worker(tmp_path):
    path = tmp_path / "net.ipn"
    with ip.load(affine(None), ["CpuRef"]) as model:
        model.save(path, shapes=[{"x": (1, 3)}])
    pickled = pickle.dumps(Predictor(path))
    with ip.load(affine(2), ["CpuRef"]) as model:
        model.save(path)
    with pytest.raises(LoadError, match="has another content here than where the predictor was created"):
        pickle.loads(pickled)({"x": ROWS})


def test_a_predictor_is_copied_with_its_settings_by_its_class(saved):
    predict = Predictor(saved(affine(2)), inputs="a", outputs={"twice": "y"})
    np.testing.assert_array_equal(Predictor(predict)({"a": ROWS})["twice"], 2 * ROWS)
    with pytest.raises(InvalidArgumentError, match="^a predictor that copies another one takes no other arguments$"):
        Predictor(predict, batch_size=3)


def test_a_file_with_another_content_is_refused_by_the_worker(saved):
    path = saved(affine(2))
    packed = pickle.dumps(Predictor(path))
    saved(affine(3))
    message = (
        rf"^the file '{path}' has another content here than where the predictor was created; copy the same file to "
        r"all hosts, or create the predictor again$"
    )
    with pytest.raises(LoadError, match=message):
        pickle.loads(packed)({"x": ROWS})


def failing(batch: int) -> ip.Network:
    """Return a network that gathers by index, and fails for an index that is too large."""
    network = ip.Network("lookup")
    index = network.add_input_layer(0, ip.TensorInfo((batch,), ip.DataType.INT32), name="index")
    table = network.add_constant_layer(np.float32([[0, 1], [2, 3], [4, 5]]))
    network.add_output_layer(0, network.add_gather_layer(table, index, axis=0), name="y")
    return network


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_rows_that_fail_get_a_message_and_the_others_their_results(saved, batch):
    rows = [0, 1, 99, 2, 1, 77, 0]
    columns = Predictor(saved(failing(batch)), on_error="row")({"index": rows})
    expected = np.float32([[0, 1], [2, 3], [np.nan] * 2, [4, 5], [2, 3], [np.nan] * 2, [0, 1]])
    np.testing.assert_array_equal(columns["y"], expected)
    assert [bool(message) for message in columns["error"]] == [row > 2 for row in rows]
    assert "99" in columns["error"][2]


def test_rows_of_another_shape_fail_alone(saved):
    rows = [ROWS[0], ROWS[1, :2], None, ROWS[3]]
    columns = Predictor(saved(affine(None)), on_error="row", error_column="why")({"x": rows})
    np.testing.assert_array_equal(columns["y"][[0, 3]], 2 * ROWS[[0, 3]])
    assert np.isnan(columns["y"][[1, 2]]).all()
    assert columns["why"].tolist() == [
        "",
        "the rows for the input 'x' have the shape (2,); expected (3,)",
        "the column for the input 'x' has no value (None) in a row",
        "",
    ]


def test_the_first_error_is_raised_by_default(saved):
    with pytest.raises(ip.InterposerError, match="99"):
        Predictor(saved(failing(2)))({"index": [0, 99]})


def test_threads_share_one_model(saved):
    predict, results = Predictor(saved(affine(2))), []
    threads = [threading.Thread(target=lambda: results.append(predict({"x": ROWS})["y"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.array_equal(result, 2 * ROWS) for result in results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'row', not 'ignore'"),
        ({"keep": "id"}, "keep must be names of columns, not 'id'"),
        ({"inputs": {"x": 3}}, "inputs must be names of columns, not ['x', 3]"),
        (
            {"batch_size": 2, "shapes": {}},
            "batch_size and shapes exclude each other; give the batch size in the shapes",
        ),
    ],
)
def test_wrong_arguments_are_refused_when_the_predictor_is_created(saved, arguments, message):
    with pytest.raises(InvalidArgumentError) as error:
        Predictor(saved(affine(2)), **arguments)
    assert str(error.value) == message


def test_an_unknown_option_is_refused_with_the_nearest_one(saved):
    with pytest.raises(InvalidArgumentError, match=r"^load has no argument 'backend'; did you mean 'backends'\?"):
        Predictor(saved(affine(2)), backend="CpuRef")


def test_a_missing_file_is_refused_when_the_predictor_is_created(tmp_path):
    with pytest.raises(ParseError, match="the file cannot be read: No such file or directory"):
        Predictor(tmp_path / "absent.onnx")


@pytest.mark.parametrize(
    ("arguments", "batch", "message"),
    [
        ({}, {"a": ROWS, "b": ROWS}, "the batch has no column 'x' (its columns: 'a', 'b')"),
        ({"inputs": {"w": "a"}}, {"a": ROWS}, "the model has no input 'w'"),
        ({"inputs": ["a", "b"]}, {"a": ROWS}, "2 columns were named; the model has 1 inputs ('x')"),
        ({"keep": ["id"]}, {"x": ROWS}, "the batch has no column 'id' (its columns: 'x')"),
        ({"keep": ["id"]}, {"x": ROWS, "id": [1]}, "the columns have different numbers of rows: 'x' 7, 'id' 1"),
        ({}, {"x": 3.0}, "the column 'x' is a single value; expected one element for each row"),
        ({}, {"x": "abc"}, "the column 'x' is a single value; expected one element for each row"),
        ({}, {"x": {1.0, 2.0}}, "the column 'x' is a single value; expected one element for each row"),
        ({}, {"x": np.float32(3).reshape(())}, "the column 'x' is a single value; expected one element for each row"),
        ({}, {"x": ROWS[:, :2]}, "the rows for the input 'x' have the shape (2,); expected (3,)"),
        (
            {},
            {"x": [[1, 2, 3], [1, 2]]},
            "the rows for the input 'x' have different shapes, such as (3,) and (2,); give them one shape first",
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(saved, arguments, batch, message):
    with pytest.raises(BindingError) as error:
        Predictor(saved(affine(None)), **arguments)(batch)
    assert str(error.value) == message


def test_a_batch_size_that_the_model_cannot_have_is_refused(saved):
    network = ip.Network("fixed")
    x = network.add_input_layer(0, ip.TensorInfo((1, 3)), name="x")
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(1, 3, 1)), name="y")
    with pytest.raises(ip.InterposerError):
        Predictor(saved(network), batch_size=4)({"x": ROWS})


def test_models_with_states_are_refused(saved):
    network = ip.Network("counter")
    x = network.add_input_layer(0, ip.TensorInfo((1, 2)), name="x")
    state = network.add_state("total", ip.TensorInfo((1, 2)))
    total = network.add_addition_layer(x, state)
    network.set_state("total", total)
    network.add_output_layer(0, total, name="y")
    with pytest.raises(InvalidArgumentError, match=r"has states \('total'\), so its rows are not independent"):
        Predictor(saved(network))({"x": [[1, 2]]})


def refused(kind: type[ip.InterposerError], call, *arguments, **options) -> str:
    """Return the message of the error that a call raises."""
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize(
    "column", [ROWS.astype(object), [row.astype(object) for row in ROWS], memoryview(ROWS), np.ma.masked_array(ROWS)]
)
def test_objects_that_are_numbers_and_buffers_are_converted(saved, column):
    np.testing.assert_array_equal(Predictor(saved(affine(4)))({"x": column})["y"], 2 * ROWS)


@pytest.mark.parametrize("batch", [None, 4])
def test_a_batch_may_be_a_data_frame(saved, batch):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": list(ROWS), "id": list("abcdefg")}, index=range(10, 17))
    columns = Predictor(saved(affine(batch)), keep=["id"])(frame)
    np.testing.assert_array_equal(columns["y"], 2 * ROWS)
    assert list(columns["id"]) == list("abcdefg")


def test_a_batch_may_be_a_table_of_arrow(saved):
    arrow = pytest.importorskip("pyarrow")
    chunks = arrow.chunked_array([arrow.array(ROWS[:2].tolist()), arrow.array(ROWS[2:].tolist())])
    for batch in (arrow.table({"x": chunks}), arrow.RecordBatch.from_pydict({"x": ROWS.tolist()})):
        np.testing.assert_array_equal(Predictor(saved(affine(4)))(batch)["y"], 2 * ROWS)
    assert Predictor(saved(affine(4)))(arrow.table({"x": chunks[:0]}))["y"].shape == (0, 3)


def test_tensors_of_arrow_keep_their_shape(saved):
    arrow = pytest.importorskip("pyarrow")
    network = ip.Network("images")
    x = network.add_input_layer(0, ip.TensorInfo((2, 4, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    images = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    tensors = arrow.FixedShapeTensorArray.from_numpy_ndarray(images)
    for column in (tensors, arrow.chunked_array([tensors[:2], tensors[2:]]), arrow.array(images.tolist())):
        np.testing.assert_array_equal(Predictor(saved(network))({"x": column})["y"], 2 * images)


def test_rows_of_arrow_without_a_value_fail_alone(saved):
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array([[1.0, 2.0, 3.0], None])
    columns = Predictor(saved(affine(2)), on_error="row")({"x": column})
    np.testing.assert_array_equal(columns["y"][0], [2, 4, 6])
    assert columns["error"].tolist() == ["", "the column for the input 'x' has no value (None) in a row"]


def test_masked_elements_are_refused(saved):
    column = np.ma.masked_array(ROWS, np.arange(21).reshape(7, 3) == 4)
    predict = Predictor(saved(affine(4)))
    message = "the column for the input 'x' has masked elements; give them values first, such as with filled()"
    assert refused(BindingError, predict, {"x": column}) == message
    columns = Predictor(saved(affine(4)), on_error="row")({"x": column})
    assert [bool(error) for error in columns["error"]] == [row == 1 for row in range(7)]
    np.testing.assert_array_equal(columns["y"][2:], 2 * ROWS[2:])


def test_rows_that_are_no_arrays_fail_alone(saved):
    rows = [[1, 2, 3], [1, 2, [3, 4]], [1, None, 3], ["a", "b", "c"], {"a": 1}, object(), [4, 5, 6]]
    columns = Predictor(saved(affine(None)), on_error="row")({"x": rows})
    assert [bool(error) for error in columns["error"]] == [False, True, True, True, True, True, False]
    assert columns["error"][1].startswith("the column for the input 'x' has a row that is no array: ")
    np.testing.assert_array_equal(columns["y"][[0, 6]], [[2, 4, 6], [8, 10, 12]])


def test_rows_whose_results_have_another_shape_fail_alone(saved):
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((None, None)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    rows = [np.ones(2), np.ones(3), np.ones(2)]
    columns = Predictor(saved(network), on_error="row")({"x": rows})
    assert columns["y"].shape == (3, 2)
    message = "the output 'y' of this row has the shape (3,); that of the first row has (2,)"
    assert columns["error"].tolist() == ["", message, ""]


def test_columns_of_the_result_have_different_names(saved):
    path = saved(affine(2))
    message = "the result would have several columns 'y'; rename one with outputs"
    assert refused(InvalidArgumentError, Predictor, path, outputs=["y"], keep=["y"]) == message
    assert refused(InvalidArgumentError, Predictor, path, outputs=["y"], on_error="row", error_column="y") == message
    assert refused(InvalidArgumentError, Predictor(path, keep=["y"]), {"x": ROWS, "y": ROWS}) == message
    assert refused(InvalidArgumentError, Predictor, path, outputs=[]).startswith(
        "outputs must name at least one output"
    )


@pytest.mark.parametrize("rows", [ROWS, ROWS[:0]])
@pytest.mark.parametrize("on_error", ["raise", "row"])
def test_an_unknown_output_is_refused_also_without_rows(saved, rows, on_error):
    predict = Predictor(saved(affine(None)), outputs={"a": "doubld"}, on_error=on_error)
    message = "outputs: the model has no value 'doubld'; did you mean 'doubled'?"
    assert refused(BindingError, predict, {"x": rows}) == message


def test_inner_values_of_no_rows_have_their_shape(saved):
    assert Predictor(saved(affine(2)), outputs=["doubled"])({"x": []})["doubled"].shape == (0, 3)


def test_kept_columns_have_rows(saved):
    predict = Predictor(saved(affine(2)), keep=["id"])
    for value in (3, "abcdefg", None, np.array(3)):
        message = "the column 'id' is a single value; expected one element for each row"
        assert refused(BindingError, predict, {"x": ROWS, "id": value}) == message


def test_a_batch_whose_columns_have_numbers_for_names_is_refused(saved):
    assert refused(BindingError, Predictor(saved(affine(2))), {1: ROWS, 2: ROWS}) == (
        "the batch has no column 'x' (its columns: 1, 2)"
    )


def test_models_with_states_are_refused_although_their_batch_dimension_is_open(saved):
    network = ip.Network("counter")
    x = network.add_input_layer(0, ip.TensorInfo((None, 2)), name="x")
    state = network.add_state("total", ip.TensorInfo((1, 2)))
    network.add_output_layer(0, network.add_addition_layer(x, state), name="y")
    network.set_state("total", network.add_addition_layer(state, state))
    assert "has states ('total')" in refused(InvalidArgumentError, Predictor(saved(network)), {"x": [[1, 2]]})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path of the model is empty"),
        ("s3://bucket/net.onnx", "this is a URL; copy the file to a path that all workers can read"),
        ("/dev/zero", "it is a device or a socket, not a regular file"),
        ("/", "the folder holds no saved_model.pb"),
        ("a\0b", "the file cannot be read: embedded null byte"),
    ],
)
def test_a_path_that_is_no_model_file_is_refused_when_the_predictor_is_created(path, message):
    assert message in refused(ParseError, Predictor, path)


def test_a_model_with_other_weights_in_a_file_of_their_own_is_refused_by_the_worker(tmp_path):
    onnx = pytest.importorskip("onnx")
    from interposer.writers.onnx import write

    network = ip.Network("wide")
    x = network.add_input_layer(0, ip.TensorInfo((1, 700)), name="x")
    weights = np.random.default_rng(0).standard_normal((700, 512), np.float32)
    network.add_output_layer(0, network.add_fully_connected_layer(x, network.add_constant_layer(weights)), name="y")
    onnx.save(write(network), tmp_path / "net.onnx", save_as_external_data=True)
    predict = Predictor(tmp_path / "net.onnx")
    (data,) = (path for path in tmp_path.iterdir() if path.name != "net.onnx")
    content = bytearray(data.read_bytes())
    content[5] ^= 1
    data.write_bytes(content)
    message = refused(LoadError, pickle.loads(pickle.dumps(predict)), {"x": np.zeros((1, 700))})
    assert message.startswith(f"the file '{data}' has another content here")


def test_relative_paths_of_keys_hold_in_other_folders(tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    plain = form.NoEncryption()
    (tmp_path / "secret.pem").write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, plain))
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    with ip.load(affine(2), ["CpuRef"]) as model:
        model.save(tmp_path / "net.ipn", sign_key=tmp_path / "secret.pem")
    monkeypatch.chdir(tmp_path)
    pickled = [pickle.dumps(Predictor("net.ipn", trusted_keys=keys)) for keys in ("public.pem", ["public.pem"])]
    monkeypatch.chdir("/")
    for predict in pickled:
        np.testing.assert_array_equal(pickle.loads(predict)({"x": ROWS})["y"], 2 * ROWS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent_that_loads(saved):
    predict = Predictor(saved(affine(2)))
    with predict._lock:  # as a thread of this process that loads the model
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(predict({"x": ROWS})["y"], 2 * ROWS) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_container_that_is_no_array_is_read_row_by_row(saved):
    class Ragged(collections.UserList):
        """As the tensors of Ray Data in a data frame, of which some are absent."""

        def __array__(self, dtype=None, copy=None):
            raise ValueError("rows of different shapes")

    columns = Predictor(saved(affine(2)), on_error="row")({"x": Ragged([ROWS[0], None])})
    assert [bool(error) for error in columns["error"]] == [False, True]
