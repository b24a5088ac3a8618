"""Messages of the library on the command line: they name its options, and no arguments in Python."""

import pytest

import interposer as ip
from interposer.cli.main import main
from interposer.cli.option_names import in_options
from interposer.core.errors import InvalidArgumentError, ParseError

MESSAGES = [
    (
        "the shapes of 'x' [N] are not known yet; run the model once, or give load(..., shapes={...}, values={...})",
        "the shapes of 'x' [N] are not known yet; run the model once, or give --shape NAME=1x3x8 and --value NAME=0,1",
    ),
    ("more than one dimension is not known; give build(..., shapes={...})",
     "more than one dimension is not known; give --shape NAME=1x3x8"),
    ("'x', 'a b': no shape; give shapes={'x': (...), 'a b': (...)}",
     "'x', 'a b': no shape; give --shape x=... --shape 'a b=...'"),
    ("the rank of operands[0] is not known; give shapes={'x': ...}",
     "the rank of operands[0] is not known; give --shape x=..."),
    ("give the value of 'n' with values= and the inputs' shapes with shapes=",
     "give the value of 'n' with --value and the inputs' shapes with --shape"),
    ("choose one with signature= (it has: decode)", "choose one with --signature (it has: decode)"),
    ("give trusted_keys=, or make a copy", "give --trusted-key, or make a copy"),
    ("name some with outputs=", "name some with --outputs"),
    ("weights= is for Caffe models", "--weights is for Caffe models"),
    ("stand_in is for TFLite files", "--stand-in is for TFLite files"),
    ("signature: the model has no signature 'a'", "--signature: the model has no signature 'a'"),
    ("budget_seconds must be more than 0, not -1", "--budget must be more than 0, not -1"),
    ("values: 'x' has shape [2]; expected [3]", "--value: 'x' has shape [2]; expected [3]"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_arguments_in_python_become_options(message, expected):
    assert in_options(InvalidArgumentError(message)) == expected


@pytest.mark.parametrize(
    "message",
    [
        "declare it with outputs=[TensorInfo(...)]",
        "the shapes: [1] and [2]",
        "n.onnx: weights have shape [2]",
        "x=3",
        "values=-3",
        "plan=.json: there is no such file",
    ],
)
def test_other_messages_stay_as_they_are(message):
    assert in_options(InvalidArgumentError(message)) == message


@pytest.mark.parametrize("name", ["shapes", "weights", "values=", "plan"])
def test_the_name_of_a_file_is_no_option(name):
    error = ParseError("this is no model; choose one with signature= and weights=", path=name)
    assert in_options(error) == f"{name}: this is no model; choose one with --signature and --weights"


@pytest.fixture
def open_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((ip.types.Dim("N"), 4)), name="x")
    network.add_output_layer(0, network.add_softmax_layer(x), name="y")
    (tmp_path / "open.txt").write_text(str(network))
    return "open.txt"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run NET --shape batch=2 --random", "--shape: the network has no dimension 'batch' (it has: N)"),
        ("explain NET --shape x=2", "--shape: 'x' is an input of the shape [N, 4]; give all its dimensions, not 2"),
        ("bench NET --random --shape N=99999999999", "--shape: 'N' is 99999999999; expected 0 to 2147483647"),
        ("convert NET o.onnx --shape y=2x4", "--shape: the network has no input 'y' (it has: x)"),
        ("trace NET --random -o t.json --value z=1",
         "--value: the model has no input 'z' (it has: x)"),
        ("compile NET -o o.ipn --variant x=2",
         "--variant: 'x' is an input of the shape [N, 4]; give all its dimensions, not 2"),
        ("run NET --signature a", "--signature is for TFLite files, TensorFlow models and saved networks; open.txt is "
         "a model of format 'text'"),
    ],
)  # fmt: skip
def test_commands_name_their_options(open_network, capsys, words, said):
    assert main(words.replace("NET", open_network).split()) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"interposer: {said}"


def test_an_option_of_a_settings_file_is_named_with_its_place(open_network, tmp_path, capsys):
    (tmp_path / "interposer.toml").write_text('[cli.run]\nshape = { batch = "2" }\n')
    assert main(["run", open_network, "--random"]) == 2
    said = capsys.readouterr().err
    assert "--shape: the network has no dimension 'batch' (it has: N) (set by " in said
