"""The notebooks of examples/notebooks run from a fresh copy, and print what they show."""

import json

import pytest

pytest.importorskip("onnx", reason="pip install '.[all]'")
pytest.importorskip("PIL", reason="pip install '.[all]'")
pytest.importorskip("flatbuffers", reason="pip install '.[all]'")

from tools import notebooks

PATHS = notebooks.notebooks()
MIXED = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Numbers"]},
        {"cell_type": "code", "metadata": {}, "source": ["x = 2\n", "print('twice')\n", "x + x"]},
        {"cell_type": "code", "metadata": {"tags": ["raises-exception"]}, "source": ["x / 0"]},
    ]
}


def test_there_are_four_notebooks():
    assert [path.name[0] for path in PATHS] == ["1", "2", "3", "4"]


@pytest.mark.needs_cpuref
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_shows(path):
    shown = json.loads(path.read_text(encoding="utf-8"))
    assert notebooks.compared(notebooks.executed(path)) == notebooks.compared(shown), "run: python tools/notebooks.py"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_has_an_output_for_most_cells_and_no_error_by_surprise(path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert sum(bool(cell["outputs"]) for cell in cells) > len(cells) / 2
    raising = [cell for cell in cells if any(output["output_type"] == "error" for output in cell["outputs"])]
    assert all("raises-exception" in cell["metadata"]["tags"] for cell in raising)


def test_the_value_of_the_last_expression_is_an_output_after_what_is_printed():
    _, printing, raising = notebooks.run_cells(json.loads(json.dumps(MIXED)))["cells"]
    assert [output["output_type"] for output in printing["outputs"]] == ["stream", "execute_result"]
    assert printing["outputs"][1]["data"] == {"text/plain": ["4"]}
    assert raising["outputs"][0]["evalue"] == "division by zero"


def test_an_error_without_its_tag_ends_the_run():
    notebook = json.loads(json.dumps(MIXED))
    notebook["cells"][2]["metadata"] = {}
    with pytest.raises(RuntimeError, match="cell 2: an error without the tag raises-exception"):
        notebooks.run_cells(notebook)


def test_a_notebook_as_markdown_has_its_code_and_its_outputs():
    markdown = notebooks.as_markdown(notebooks.run_cells(json.loads(json.dumps(MIXED))))
    assert markdown.startswith("# Numbers\n\n```python\nx = 2\nprint('twice')\nx + x\n```\n\n```text\ntwice\n```")
    assert markdown.endswith("```text\nZeroDivisionError: division by zero\n```\n")


def test_outputs_that_vary_are_not_compared():
    cell = {"source": ["1"], "metadata": {"tags": ["varies"]}, "outputs": [{"output_type": "stream", "text": ["1"]}]}
    assert notebooks.compared({"cells": [cell]}) == [(["1"], [])]
