"""Variables and tables of TFLite files: states of the network that last from run to run, as in LiteRT."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import load
from interposer.core.errors import ParseError
from interposer.frontends import tflite
from interposer.session.variants import KnownBlueprint
from tests.frontends.tflite.build import code, encode, operator, tensor

HANDLE = ("VarHandleOptions", {"shared_name": "total"})


def subgraph(tensors: list[dict[str, Any]], inputs: list[int], outputs: list[int], *operators: Any) -> dict[str, Any]:
    """Operators are triples of name, inputs and outputs, followed by options if there are any."""
    created = []
    for name, taken, value, *options in operators:
        more = {"builtin_options": options[0]} if options else {}
        created.append(operator(taken, value, opcode_index=name, **more))
    return {"tensors": tensors, "inputs": inputs, "outputs": outputs, "operators": created}


def file(*subgraphs: dict[str, Any], constants: Sequence[np.ndarray | bytes] = (), **more: Any) -> bytes:
    """Return a file; constant number k is in buffer k + 1."""
    data = [item if isinstance(item, bytes) else item.tobytes() for item in constants]
    operators = [item for graph in subgraphs for item in graph["operators"]]
    names = sorted({item["opcode_index"] for item in operators})
    for item in operators:
        item["opcode_index"] = names.index(item["opcode_index"])
    codes = [code(name) for name in names]
    buffers = [{}, *({"data": item} for item in data)]
    return encode({"version": 3, "operator_codes": codes, "buffers": buffers, "subgraphs": list(subgraphs), **more})


def initialized(*operators: Any, tensors: Sequence[dict[str, Any]] = (), outputs: Sequence[int] = (2,)) -> list[Any]:
    """Return two subgraphs: one whose variable ``total`` is tensor 1, and one that assigns [5, 6] to the variable."""
    more = [tensor("x", [2]), tensor("handle", [], "resource"), tensor("y", [2]), *tensors]
    once = ("CALL_ONCE", [], [], ("CallOnceOptions", {"init_subgraph_index": 1}))
    main = subgraph(more, [0], [*outputs], once, ("VAR_HANDLE", [], [1], HANDLE), *operators)
    start = subgraph(
        [tensor("handle", [], "resource"), tensor("start", [2], buffer=1)], [], [],
        ("VAR_HANDLE", [], [0], HANDLE), ("ASSIGN_VARIABLE", [0, 1], []),
    )  # fmt: skip
    return [main, start]


START = np.float32([5, 6])
X = np.float32([1, 2])
ADD = ("AddOptions", {})


def summing() -> bytes:
    """Return a file that computes total += x; y = total."""
    tensors = [tensor("before", [2]), tensor("after", [2])]
    return file(
        *initialized(
            ("READ_VARIABLE", [1], [3]), ("ADD", [3, 0], [4], ADD), ("ASSIGN_VARIABLE", [1, 4], []),
            ("READ_VARIABLE", [1], [2]), tensors=tensors,
        ), constants=[START],
    )  # fmt: skip


def conditional() -> bytes:
    """Branch 2 adds 1 to the variable and returns it; branch 3, whose handle is an argument, doubles it."""
    main, start = initialized(
        ("IF", [3, 0], [2], ("IfOptions", {"then_subgraph_index": 2, "else_subgraph_index": 3})),
        tensors=[tensor("c", [1], "bool")],
    )
    main["inputs"] = [3, 0]
    handle = tensor("handle", [], "resource")
    tensors = [tensor("x", [2]), handle, tensor("a", [2]), tensor("b", [2])]
    steps = ("VAR_HANDLE", [], [1], HANDLE), ("READ_VARIABLE", [1], [2])
    then = subgraph(tensors, [0], [3], *steps, ("ADD", [2, 0], [3], ADD), ("ASSIGN_VARIABLE", [1, 3], []))
    other = subgraph(tensors, [0], [3], *steps, ("ADD", [2, 2], [3], ADD), ("ASSIGN_VARIABLE", [1, 3], []))
    return file(main, start, then, other, constants=[START])


def looping(handle_is_argument: bool = False) -> bytes:
    """Return a file that computes total += x while i < 4, with i += 1; then y = total."""
    tensors = [
        tensor("i", [], "int32", buffer=2), tensor("j", [], "int32"), tensor("x2", [2]),
        tensor("handle2", [], "resource"),
    ]  # fmt: skip
    options = ("WhileOptions", {"cond_subgraph_index": 2, "body_subgraph_index": 3})
    arguments, results = ([3, 0], [4, 5]) if not handle_is_argument else ([3, 1, 0], [4, 6, 5])
    read = 6 if handle_is_argument else 1
    main, start = initialized(("WHILE", arguments, results, options), ("READ_VARIABLE", [read], [2]), tensors=tensors)
    inner = [tensor("i", [], "int32"), tensor("h", [], "resource"), tensor("x", [2])]
    inputs = [0, 1, 2] if handle_is_argument else [0, 2]
    test = subgraph(
        [*inner, tensor("four", [], "int32", buffer=3), tensor("c", [], "bool")], inputs, [4], ("LESS", [0, 3], [4])
    )
    own = () if handle_is_argument else (("VAR_HANDLE", [], [1], HANDLE),)
    body = subgraph(
        [*inner, tensor("one", [], "int32", buffer=4), tensor("k", [], "int32"), tensor("a", [2]), tensor("b", [2])],
        inputs, [4 if i == 0 else i for i in inputs], *own, ("READ_VARIABLE", [1], [5]), ("ADD", [5, 2], [6], ADD),
        ("ASSIGN_VARIABLE", [1, 6], []), ("ADD", [0, 3], [4], ADD),
    )  # fmt: skip
    return file(main, start, test, body, constants=[START, np.int32(0), np.int32(4), np.int32(1)])


def calling() -> bytes:
    """Call twice a subgraph that adds x to the variable; return what the second one returns."""
    call = ("CallOptions", {"subgraph": 2})
    main, start = initialized(("CALL", [0], [3], call), ("CALL", [3], [2], call), tensors=[tensor("z", [2])])
    tensors = [tensor("x", [2]), tensor("h", [], "resource"), tensor("a", [2]), tensor("b", [2])]
    inner = subgraph(
        tensors, [0], [3], ("VAR_HANDLE", [], [1], HANDLE), ("READ_VARIABLE", [1], [2]), ("ADD", [2, 0], [3], ADD),
        ("ASSIGN_VARIABLE", [1, 3], []),
    )  # fmt: skip
    return file(main, start, inner, constants=[START])


def texts(*values: str) -> bytes:
    items = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, items)]) + 4 * (len(items) + 2)
    return struct.pack(f"<{len(items) + 2}i", len(items), *ends) + b"".join(items)


def table() -> bytes:
    """Find x, int64, in a table of texts; the size is the second output."""
    options = ("HashtableOptions", {"table_id": 7, "key_dtype": 4, "value_dtype": 5})
    once = ("CALL_ONCE", [], [], ("CallOnceOptions", {"init_subgraph_index": 1}))
    tensors = [
        tensor("x", [3], "int64"), tensor("handle", [1], "resource"), tensor("default", [], "string", buffer=3),
        tensor("y", [3], "string"), tensor("n", [1], "int64"),
    ]  # fmt: skip
    main = subgraph(
        tensors, [0], [3, 4], once, ("HASHTABLE", [], [1], options), ("HASHTABLE_FIND", [1, 0, 2], [3]),
        ("HASHTABLE_SIZE", [1], [4]),
    )  # fmt: skip
    inner = [
        tensor("handle", [1], "resource"), tensor("keys", [3], "int64", buffer=1),
        tensor("values", [3], "string", buffer=2),
    ]  # fmt: skip
    start = subgraph(inner, [], [], ("HASHTABLE", [], [0], options), ("HASHTABLE_IMPORT", [0, 1, 2], []))
    return file(main, start, constants=[np.int64([10, 20, 10]), texts("a", "bc", "d"), texts("none")])


FILES = {
    "sum": (summing(), [[X]]),
    "if": (conditional(), [[np.array([True]), X], [np.array([False]), X]]),
    "while": (looping(), [[X]]),
    "while with the handle as an argument": (looping(True), [[X]]),
}


@pytest.mark.parametrize("name", FILES)
def test_variables_last_from_run_to_run_as_in_litert(name: str) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    data, feeds = FILES[name]
    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # XNNPACK crashes on branches with variables
    other = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=plain)
    other.allocate_tensors()
    with load(data, ["CpuRef"]) as model:
        for step in range(5):
            inputs = feeds[step % len(feeds)]
            for detail, value in zip(other.get_input_details(), inputs, strict=True):
                other.set_tensor(detail["index"], value)
            other.invoke()
            expected = [other.get_tensor(detail["index"]) for detail in other.get_output_details()]
            for mine, its in zip(model.run(inputs), expected, strict=True):
                np.testing.assert_array_equal(mine, its)


def test_a_variable_starts_with_what_call_once_assigns() -> None:
    with load(summing(), ["CpuRef"]) as model:
        assert (list(model.inputs), list(model.outputs)) == (["x"], ["y"])
        assert model.state["total"].tolist() == [5, 6]
        assert [model.run([X])[0].tolist() for _ in range(2)] == [[6, 8], [7, 10]]
        model.reset_state()
        assert model.run([X])[0].tolist() == [6, 8]


def test_branches_read_and_write_variables() -> None:
    with load(conditional(), ["CpuRef"]) as model:
        runs = [model.run([np.array([flag]), X])[0].tolist() for flag in (True, False, True)]
        assert runs == [[6, 8], [12, 16], [13, 18]]


@pytest.mark.parametrize("handle_is_argument", [False, True])
def test_loops_read_and_write_variables(handle_is_argument: bool) -> None:
    with load(looping(handle_is_argument), ["CpuRef"]) as model:
        assert [model.run([X])[0].tolist() for _ in range(2)] == [[9, 14], [13, 22]]
        assert model.state["total"].tolist() == [13, 22]


def test_called_subgraphs_read_and_write_variables() -> None:
    with load(calling(), ["CpuRef"]) as model:
        assert [model.run([X])[0].tolist() for _ in range(2)] == [[12, 16], [26, 36]]


def test_a_variable_that_is_never_written_is_a_constant() -> None:
    data = file(*initialized(("READ_VARIABLE", [1], [2])), constants=[START])
    network = tflite.load(data)
    assert network.states == []
    with load(data, ["CpuRef"]) as model:
        assert model.run([X])[0].tolist() == [5, 6]


def test_a_hash_table_is_found_with_its_first_values() -> None:
    with load(table(), ["CpuRef"]) as model:
        found, size = model.run([np.int64([20, 10, 30])])
        assert (found.tolist(), size.tolist()) == (["bc", "a", "none"], [2])


def test_a_table_that_nothing_initializes_is_refused() -> None:
    options = ("HashtableOptions", {"table_id": 7})
    tensors = [tensor("x", [3], "int64"), tensor("handle", [1], "resource"), tensor("n", [1], "int64")]
    main = subgraph(tensors, [0], [2], ("HASHTABLE", [], [1], options), ("HASHTABLE_SIZE", [1], [2]))
    with pytest.raises(ParseError, match=r"operators\[1\] HASHTABLE_SIZE: nothing initializes the table"):
        tflite.load(file(main))


def test_a_variable_that_changes_its_shape_is_refused() -> None:
    tensors = [tensor("z", [3], buffer=2)]
    data = file(
        *initialized(("ASSIGN_VARIABLE", [1, 3], []), ("READ_VARIABLE", [1], [2]), tensors=tensors),
        constants=[START, np.zeros(3, np.float32)],
    )
    with pytest.raises(ParseError, match=r"the variable 'total' is float32\[2\], but gets float32\[3\]"):
        tflite.load(data)


def test_a_variable_that_is_read_as_another_type_is_refused() -> None:
    main, start = initialized(("READ_VARIABLE", [1], [3]), tensors=[tensor("z", [2], "int32")], outputs=[3])
    with pytest.raises(ParseError, match=r"READ_VARIABLE: the variable is float32\[2\], but its value becomes int32"):
        tflite.load(file(main, start, constants=[START]))


def signed() -> bytes:
    """Return a file with two signatures: ``add`` adds x to the variable, and ``get`` returns the variable."""
    main, start = initialized(
        ("READ_VARIABLE", [1], [3]), ("ADD", [3, 0], [2], ADD), ("ASSIGN_VARIABLE", [1, 2], []),
        tensors=[tensor("before", [2])],
    )  # fmt: skip
    once = ("CALL_ONCE", [], [], ("CallOnceOptions", {"init_subgraph_index": 1}))
    get = subgraph(
        [tensor("handle", [], "resource"), tensor("value", [2])], [], [1], once, ("VAR_HANDLE", [], [0], HANDLE),
        ("READ_VARIABLE", [0], [1]),
    )  # fmt: skip
    signatures = [
        {"signature_key": "add", "inputs": [{"name": "x", "tensor_index": 0}],
         "outputs": [{"name": "y", "tensor_index": 2}], "subgraph_index": 0},
        {"signature_key": "get", "inputs": [], "outputs": [{"name": "value", "tensor_index": 1}], "subgraph_index": 2},
    ]  # fmt: skip
    return file(main, start, get, constants=[START], signature_defs=signatures)


def test_signatures_share_the_variables_of_a_model() -> None:
    with load(signed(), ["CpuRef"]) as model:
        assert model.run([], signature="get")[0].tolist() == [5, 6]
        assert model.run([X], signature="add")[0].tolist() == [6, 8]
        assert model.run([], signature="get")[0].tolist() == [6, 8]
        model.run([X])
        assert model.run([], signature="get")[0].tolist() == [7, 10]
        model.reset_state()
        assert model.run([], signature="get")[0].tolist() == [5, 6]


def test_signatures_share_variables_as_in_litert() -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    other = interpreter.Interpreter(model_content=signed())
    with load(signed(), ["CpuRef"]) as model:
        for _ in range(3):
            np.testing.assert_array_equal(
                model.run([X], signature="add")[0], other.get_signature_runner("add")(x=X)["y"]
            )
            np.testing.assert_array_equal(
                model.run([], signature="get")[0], other.get_signature_runner("get")()["value"]
            )


def test_a_network_with_variables_is_cached(tmp_path: Path, cpuacc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "sum.tflite"
    path.write_bytes(summing())
    for _ in range(2):
        with load(path, ["CpuAcc"]) as model:
            assert model.state["total"].tolist() == [5, 6]
            assert [model.run([X])[0].tolist() for _ in range(2)] == [[6, 8], [7, 10]]
            was_cached = type(model._blueprint) is KnownBlueprint
    assert was_cached


def variable(dtype: str, scaled: tuple[float, int] | None) -> bytes:
    """Return a file that computes x + v, with a variable tensor v that nothing writes."""
    more = {} if scaled is None else {"quantization": {"scale": [scaled[0]], "zero_point": [scaled[1]]}}
    tensors = [tensor("x", [2], dtype, **more), tensor("v", [2], dtype, is_variable=True, **more),
               tensor("y", [2], dtype, **more)]  # fmt: skip
    return file(subgraph(tensors, [0], [2], ("ADD", [0, 1], [2], ADD)))


@pytest.mark.parametrize(
    ("dtype", "scaled"), [("float32", None), ("int8", (0.5, 3)), ("uint8", (0.5, 3)), ("int16", (0.5, 0))]
)
def test_variable_tensors_start_as_in_litert(dtype: str, scaled: tuple[float, int] | None) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    data, x = variable(dtype, scaled), np.array([10, 20], dtype)
    other = interpreter.Interpreter(model_content=data)
    other.allocate_tensors()
    other.set_tensor(other.get_input_details()[0]["index"], x)
    other.invoke()
    with load(data, ["CpuRef"]) as model:
        np.testing.assert_array_equal(model.run([x])[0], other.get_tensor(other.get_output_details()[0]["index"]))


def test_an_operator_on_variables_without_operands_is_refused():
    graph = {"tensors": [], "inputs": [], "outputs": [], "operators": [operator([], [], opcode_index=0)]}
    with pytest.raises(ParseError, match="operators\\[0\\] READ_VARIABLE"):
        tflite.load(encode({"version": 3, "operator_codes": [code("READ_VARIABLE")], "subgraphs": [graph]}))
