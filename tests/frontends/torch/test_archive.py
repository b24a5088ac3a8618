"""Files of `torch.export.save`: read without pickles and without running what they say, or refused with words."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
import interposer.session
from interposer.cli.main import main
from interposer.core.errors import DamagedFileError, ParseError, UnsupportedOperatorError
from interposer.frontends.torch.archive import program_of
from tests.fuzz.damaged_programs import archive_of
from tests.fuzz.programs import counting, torch

pytestmark = pytest.mark.filterwarnings("ignore")
EXPORT = "write the network with torch.export.save(torch.export.export(module, inputs), path)"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return counting(tmp_path_factory.mktemp("program")).read_bytes()


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_document(content: bytes, change: Callable[[Any], None]) -> bytes:
    """Return the archive with a changed description of the program."""
    members = members_of(content)
    [name] = [name for name in members if name.endswith("models/model.json")]
    document = json.loads(members[name])
    change(document)
    return archive_of(members | {name: json.dumps(document).encode()})


def with_member(content: bytes, ending: str, data: bytes) -> bytes:
    members = members_of(content)
    [name] = [name for name in members if name.endswith(ending)]
    return archive_of(members | {name: data})


def with_config(content: bytes, ending: str, change: Callable[[Any], None]) -> bytes:
    members = members_of(content)
    [name] = [name for name in members if name.endswith(ending)]
    document = json.loads(members[name])
    change(document["config"])
    return archive_of(members | {name: json.dumps(document).encode()})


class Harm:
    """Creates a file when its pickle is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.needs_cpuref
def test_the_program_of_a_file_is_that_of_pytorch(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    expected = torch.export.load(io.BytesIO(content)).module()
    x, options = torch.randn(3, 4), {"scale": torch.full((1,), 2.0)}
    for source in (path, str(path), content, io.BytesIO(content), memoryview(content)):
        model = ip.load(source)
        result = model(x, options=options)
        if source is path:
            torch.testing.assert_close(result["y"], expected(x, options=options)["y"])
        assert (result["size"], result["none"]) == (6, None)


def test_weights_share_the_memory_of_the_file(content: bytes) -> None:
    buffer = np.frombuffer(content, np.uint8)
    tensors = program_of(content).state_dict.values()
    start = buffer.ctypes.data
    assert all(start <= tensor.data_ptr() < start + buffer.nbytes for tensor in tensors)


@pytest.mark.parametrize("member", ["data/sample_inputs/model.pt"])
def test_pickles_that_are_not_needed_are_not_opened(content: bytes, member: str, tmp_path: Path) -> None:
    assert program_of(with_member(content, member, pickle.dumps(Harm(tmp_path / "harm"))))
    assert not list(tmp_path.iterdir())


def test_pickled_weights_are_opened_by_the_rule_for_weights_only(content: bytes, tmp_path: Path) -> None:
    def pickled(config: Any) -> None:
        config["linear.bias"] |= {"use_pickle": True}

    number = json.loads(next(d for n, d in members_of(content).items() if n.endswith("weights_config.json")))
    name = number["config"]["linear.bias"]["path_name"]
    saved = io.BytesIO()
    torch.save(torch.arange(3.0), saved)
    changed = with_config(content, "weights_config.json", pickled)
    good = with_member(changed, f"data/weights/{name}", saved.getvalue())
    assert torch.equal(program_of(good).state_dict["linear.bias"], torch.arange(3.0))
    saved = io.BytesIO()
    torch.save(Harm(tmp_path / "harm"), saved)
    with pytest.raises(ParseError) as caught:
        program_of(with_member(changed, f"data/weights/{name}", saved.getvalue()))
    assert str(caught.value) == (
        f"its member 'data/weights/{name}' is a pickle with more than plain tensors, which could run any program, "
        "and is not opened; to read a file that you trust, call torch.export.load(path) yourself, and load its result"
    )
    assert not list(tmp_path.iterdir())


def test_other_objects_are_refused(content: bytes) -> None:
    def other(config: Any) -> None:
        next(iter(config.values()))["path_name"] = "custom_obj_0"

    with pytest.raises(ParseError, match="is no tensor; data/constants/custom_obj_0 is a pickle with more"):
        program_of(with_config(content, "constants_config.json", other))


def rename(document: Any) -> None:
    text = json.dumps(document).replace('"x"', '"x=print(1)"')
    document.clear()
    document.update(json.loads(text))


def expression(text: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        values = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        values[0] = {"as_expr": {"expr_str": text, "hint": {"as_int": 3}}}

    return change


def target(name: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][-1]["target"] = name

    return change


def tree(**context: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        spec = {"type": "builtins.dict", "context": json.dumps(context), "children_spec": []}
        document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])

    return change


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (rename, DamagedFileError, "'x=print(1)' is no name of a value"),
        (expression("__import__('os').abort()"), ParseError, "is not one that PyTorch writes, and is not evaluated"),
        (expression("9**9**9**9"), ParseError, "is not one that PyTorch writes, and is not evaluated"),
        (expression("Symbol('s0').__class__"), ParseError, "is not one that PyTorch writes, and is not evaluated"),
        (target("torch.hub.load"), UnsupportedOperatorError, "1 x torch.hub.load"),
        (target("torch.ops.aten.from_file.default"), UnsupportedOperatorError, "1 x torch.ops.aten.from_file.default"),
        (target("_operator.attrgetter"), UnsupportedOperatorError, "1 x _operator.attrgetter"),
        (tree(default_factory_module="os", default_factory_name="abort"), ParseError, "'os.abort', which is not run"),
        (tree(a={"__enum__": True, "fqn": "antigravity:x"}), ParseError, "has a key of an enumeration"),
    ],
)  # fmt: skip
def test_what_could_run_a_program_is_refused(
    content: bytes, change: Callable[[Any], None], kind: type[ParseError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        program_of(with_document(content, change))
    assert message in str(caught.value)


def test_metadata_that_is_no_text_is_ignored(content: bytes) -> None:
    def change(document: Any) -> None:
        for node in document["graph_module"]["graph"]["nodes"]:
            node["metadata"] = {"stack_trace": 7, "nn_module_stack": [1]}

    inputs = [np.ones((3, 4), np.float32), np.ones(1, np.float32)]
    changed, kept = (ip.load(item).run(inputs) for item in (with_document(content, change), content))
    for result, expected in zip(changed, kept, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_guards_are_not_compiled(content: bytes) -> None:
    def change(document: Any) -> None:
        document["guards_code"] = ["__import__('os').abort()"]

    assert program_of(with_document(content, change))._guards_code == []


def test_structures_of_packages_that_are_not_imported_become_plain(content: bytes) -> None:
    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        version, spec = json.loads(signature["out_spec"])
        context = json.dumps(["output", ["y", "size", "none"]])
        signature["out_spec"] = json.dumps([version, spec | {"type": "nobody.Output", "context": context}])

    program = program_of(with_document(content, change))
    assert program.call_spec.out_spec.type is dict


def test_compressed_members_are_refused(content: bytes) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members_of(content).items():
            archive.writestr(name, data)
    with pytest.raises(ParseError, match="is compressed or encrypted; torch.export.save writes members as they are"):
        program_of(packed.getvalue())


def test_a_weight_beyond_its_bytes_is_refused(content: bytes) -> None:
    def change(config: Any) -> None:
        config["linear.weight"]["tensor_meta"]["sizes"][0] = {"as_int": 1 << 40}

    with pytest.raises(DamagedFileError, match="the tensor 'linear.weight' is wrong: .* more bytes than the file has"):
        program_of(with_config(content, "weights_config.json", change))


def test_a_wrong_checksum_is_noticed(content: bytes) -> None:
    [name] = [name for name in members_of(content) if name.endswith("data/weights/weight_0")]
    place = content.index(members_of(content)[name])
    damaged = bytearray(content)
    damaged[place] ^= 1
    with pytest.raises(DamagedFileError) as caught:
        program_of(bytes(damaged))
    assert str(caught.value).endswith("the checksum of its member 'data/weights/weight_0' is wrong")


def saved(value: Any) -> bytes:
    target = io.BytesIO()
    torch.save(value, target)
    return target.getvalue()


def scripted() -> bytes:
    target = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: saved({"a": torch.ones(2)}), "the file has pickled objects (torch.save), such as the weights"),
        (scripted, "the file is a program of TorchScript (torch.jit.save), which is not supported"),
        (lambda: pickle.dumps([1, 2]), "the file is a pickle of Python, which can run any program when it is opened"),
        (lambda: b"\x10" + bytes(7) + b'{"a":{}}' + bytes(60), "the file has weights in the format safetensors"),
        (lambda: archive_of({"a/data/aotinductor/x.so": b""}), "the file has programs that AOTInductor has compiled"),
    ],
    ids=["weights", "script", "pickle", "safetensors", "compiled"],
)  # fmt: skip
def test_other_files_of_pytorch_are_recognized(make: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(make())
    for source in (path, path.read_bytes()):
        with pytest.raises(ParseError) as caught:
            ip.load(source)
        assert message in str(caught.value)
        assert str(caught.value).endswith(EXPORT)


@pytest.mark.needs_cpuref
def test_the_command_line_takes_a_program_by_its_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    assert main(["run", str(path), "--random", "--shape", "x=3x4"]) == 0
    network = ip.session.read_network(path, shapes={"x": (3, 4)})
    assert [layer.name for layer in network.inputs.values()] == ["x", "options_scale"]
