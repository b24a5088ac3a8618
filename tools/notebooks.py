"""Run the notebooks in examples/notebooks, and store their outputs in them; with ``--check``, list those that differ.

The cells of a notebook run in one new process, in a copy of the folder examples. They need what `pip install '.[all]'`
brings; Jupyter is not needed. Outputs of cells with the tag ``varies``, such as times, are not compared.

    python tools/notebooks.py
    python tools/notebooks.py --check
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "examples" / "notebooks"
RAISES: Final = "raises-exception"
"""The tag of a cell that raises an error, with which Jupyter runs the cells after it."""
_LONG: Final = 1_000
"""The characters of a value's text that are too many to show."""
Notebook: TypeAlias = dict[str, Any]
Output: TypeAlias = dict[str, Any]


def executed(path: Path) -> Notebook:
    """Return a notebook with the outputs of its cells, which run in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"), ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-P", __file__, "--cells", str(path)]
        completed = subprocess.run(
            command, cwd=Path(folder, "examples", "notebooks"), capture_output=True, text=True, timeout=300, check=True
        )
    notebook: Notebook = json.loads(completed.stdout)
    return notebook


def run_cells(notebook: Notebook) -> Notebook:
    """Return a notebook with the outputs of its cells, which run in this process."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = list(_outputs("".join(cell["source"]), namespace, number))
        has_failed = any(output["output_type"] == "error" for output in cell["outputs"])
        if has_failed != (RAISES in cell["metadata"].get("tags", ())):
            raise RuntimeError(f"cell {number}: an error without the tag {RAISES}, or the reverse: {cell['outputs']}")
    return notebook


def _outputs(source: str, namespace: dict[str, Any], number: int) -> Iterator[Output]:
    printed, value, failure = io.StringIO(), None, None
    with contextlib.redirect_stdout(printed):
        try:
            value = _run(source, namespace, number)
        except Exception as error:  # an error is an output, which the notebook explains
            failure = error
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
    if value is not None:
        yield {"data": _data(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
    if failure is not None:
        yield _error(failure)


def _run(source: str, namespace: dict[str, Any], number: int) -> object:
    """Run a cell, and return the value of its last statement if that is an expression."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), namespace)
    if last is None or source.rstrip().endswith(";"):
        return None
    return eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)


def _data(value: object) -> dict[str, Any]:
    text = repr(value)
    data: dict[str, Any] = {"text/plain": _lines(text if len(text) < _LONG else f"<{type(value).__name__}>")}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
        data["text/plain"] = [f"<{type(value).__name__}>"]  # the text of an image has its address
    return data


def _error(error: Exception) -> Output:
    lines = traceback.format_exception_only(error)
    return {
        "ename": type(error).__name__,
        "evalue": str(error),
        "output_type": "error",
        "traceback": "".join(lines).splitlines(),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def as_markdown(notebook: Notebook) -> str:
    """Return a notebook as Markdown: its texts, and its code in blocks with the outputs below them."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _markdown_parts(cell)) + "\n"


def _markdown_parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![the output of the cell](data:image/png;base64,{data['image/png'].strip()})"
        elif "text/html" in data:
            yield "".join(data["text/html"])
        else:
            text = data.get("text/plain") or output.get("text") or [f"{output['ename']}: {output['evalue']}"]
            yield f"```text\n{''.join(text).rstrip()}\n```"


def text_of(notebook: Notebook) -> str:
    """Return a notebook as the text of its file."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def compared(notebook: Notebook) -> list[tuple[str, Any]]:
    """Return the cells that are compared: sources and outputs, without images and what varies."""
    return [(cell["source"], _comparable(cell)) for cell in notebook["cells"]]


def _comparable(cell: dict[str, Any]) -> list[Any]:
    if "varies" in cell["metadata"].get("tags", ()):
        return []
    return [
        {name: text for name, text in output["data"].items() if name != "image/png"} if "data" in output else output
        for output in cell.get("outputs", ())
    ]


def notebooks() -> list[Path]:
    """Return the paths of all notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def main() -> int:
    """Run the notebooks; write them or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; list notebooks with other outputs")
    parser.add_argument("--cells", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cells:
        print(text_of(run_cells(json.loads(Path(arguments.cells).read_text(encoding="utf-8")))), end="")
        return 0
    differing = 0
    for path in notebooks():
        before, after = json.loads(path.read_text(encoding="utf-8")), executed(path)
        if not arguments.check:
            path.write_text(text_of(after), encoding="utf-8")
        elif compared(before) != compared(after):
            differing += 1
            print(f"{path.relative_to(ROOT)} has other outputs")
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
