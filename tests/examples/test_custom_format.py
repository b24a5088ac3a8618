"""The example of a file format: installed as a package, it is read, written, and found by every command."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.plugins.install import python, write_dist_info

FOLDER = Path(__file__).parents[2] / "examples" / "custom_format"
FILE = FOLDER / "classifier.lines"
LOADED = """
import numpy as np, interposer
model = interposer.load({source!r})
print(*(f"{{chance:.4f}}" for chance in model(np.ones((1, 2, 2), np.float32)).flat))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with the package of the example and its entry points."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copy(FOLDER / "lines_format.py", tmp_path)
    [(group, points)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    write_dist_info(tmp_path, project["name"], project["version"], "\n".join(lines))
    return tmp_path


def ran(folder: Path, *arguments: str) -> str:
    """Return what an interpreter prints that finds the package in a folder; the run has to succeed."""
    done = python(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_of_the_format_is_loaded_as_any_other(installed: Path) -> None:
    assert ran(installed, "-c", LOADED.format(source=str(FILE))) == "0.1402 0.6285 0.2312\n"


def test_the_format_is_written_as_it_was_read(installed: Path) -> None:
    out = ran(installed, "-m", "interposer", "convert", str(FILE), "again.lines")
    assert out == "again.lines: 5 layers as 10 lines\n"
    assert (installed / "again.lines").read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")


def test_the_options_of_the_writer_are_arguments_of_the_command(installed: Path) -> None:
    source = installed / "third.lines"
    source.write_text("lines 1\nconstant third 1 = 0.333333333\ninput x 1\ny = add x third\noutput y\n")
    ran(installed, "-m", "interposer", "convert", str(source), "short.lines", "--digits", "2")
    assert "constant third 1 = 0.33\n" in (installed / "short.lines").read_text(encoding="utf-8")


def test_a_layer_that_the_format_lacks_is_an_error_with_its_name(installed: Path) -> None:
    source = installed / "sine.txt"
    source.write_text(
        'graph "sine" {\n  %x = Input : float32[1]\n  %y = ElementwiseUnary(operation=SIN) %x\n  Output %y as "z"\n}\n'
    )
    done = python(installed, "-m", "interposer", "convert", str(source), "sine.lines")
    assert done.returncode == 2
    assert "layer 'y' (ElementwiseUnary): lines have no such layer" in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = cosine x", "1 x cosine (line 3)"),
        ("y = relu z", "line 3: the value 'z' is not defined"),
        ("y = reshape x", "line 3: it needs sizes="),
        ("y = softmax x axis=a", "line 3: it cannot be converted (ValueError: "),
    ],
)
def test_what_is_wrong_with_a_line_is_told_with_its_number(installed: Path, line: str, message: str) -> None:
    (installed / "wrong.lines").write_text(f"lines 1\ninput x 1\n{line}\noutput y\n")
    done = python(installed, "-m", "interposer", "run", "wrong.lines")
    assert done.returncode == 2
    assert message in done.stderr


def test_a_broken_format_beside_it_is_a_record_and_no_obstacle(installed: Path) -> None:
    write_dist_info(installed, "papyrus", "1.0", "[interposer.formats]\npapyrus = nowhere:Papyrus\nonnx = nowhere:Onnx")
    program = "import json; from interposer.file_formats import process_formats; "
    records = json.loads(ran(installed, "-c", program + "print(json.dumps(process_formats().records()))"))
    reasons = {(name, source): reason for name, available, source, reason in records if not available}
    assert reasons == {
        ("papyrus", "entry point of papyrus"): "ModuleNotFoundError: No module named 'nowhere'",
        ("onnx", "entry point of papyrus"): "the name is taken (entry point of interposer-nn)",
    }
    assert ran(installed, "-c", LOADED.format(source=str(FILE))) == "0.1402 0.6285 0.2312\n"
