"""Write the files that are generated from declarations: the builders, and the reference pages.

``python tools/generate.py`` writes the files again. With ``--check`` it changes nothing, lists the outdated files, and
exits with status 1 if there are any. In both cases it lists errors in the declarations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from interposer.core.schema import Op  # noqa: E402
from interposer.ir.signatures import settable_attributes  # noqa: E402
from interposer.kernels import reference  # noqa: E402
from tools.armnn_layers import armnn_page  # noqa: E402
from tools.builders import builders_stub  # noqa: E402
from tools.declarations import docstring_sections, first_line, shipped  # noqa: E402
from tools.figures import PAGES, with_figures  # noqa: E402
from tools.pages import environment_page, errors_page, family_page, operators_index  # noqa: E402
from tools.recordings import with_recordings  # noqa: E402
from tools.tensorflow_operators import tensorflow_page  # noqa: E402
from tools.tflite_operators import tflite_page  # noqa: E402
from tools.torch_operators import torch_page  # noqa: E402
from tools.vocabulary import HEADERS, frozen_problems, headers, vocabulary_module  # noqa: E402

TAKEN: Final = frozenset({"self", "name", "outputs", "op"})


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Write what follows from declarations.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a file is stale")
    check = parser.parse_args(arguments).check
    for complaint in complaints():
        print(f"declared badly: {complaint}", file=sys.stderr)
    texts = generated()
    stale = stale_files(texts)
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path}")
    if check:
        return 1 if stale else 0
    write(stale, texts)
    return 0


def stale_files(texts: Mapping[str, str]) -> list[str]:
    """Return the paths of generated files whose content is not the requested one, or that are no longer generated.

    `texts` has the content of each generated file by its path.
    """
    pages = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/reference/operators").glob("*.md"))
    wrong = {path for path, text in texts.items() if _read(path) != text}
    return sorted(wrong | set(pages) - texts.keys())


def write(paths: Iterable[str], texts: Mapping[str, str]) -> None:
    """Write the content in `texts` to the files at `paths`, and delete those of them that have no content there."""
    for path in paths:
        target = ROOT / path
        if path not in texts:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(texts[path], encoding="utf-8")


def generated() -> dict[str, str]:
    """Return the text of each generated file by its path from the root."""
    files = {
        "src/interposer/ir/builders.pyi": builders_stub(),
        "src/interposer/plugins/capi/abi/vocabulary.py": vocabulary_module(),
        "docs/reference/armnn.md": armnn_page(),
        "docs/reference/errors.md": errors_page(),
        "docs/reference/environment.md": environment_page(),
        "docs/reference/tensorflow.md": tensorflow_page(),
        "docs/reference/tflite.md": tflite_page(),
        "docs/reference/torch.md": torch_page(),
    }
    files |= {path: with_recordings(text) for path in ("docs/engines.md",) if (text := _read(path)) is not None}
    files |= {path: with_figures(path, text) for path in PAGES if (text := _read(path)) is not None}
    files |= headers({path: text for path in HEADERS if (text := _read(path)) is not None})
    families = [(family, list(group)) for family, group in groupby(shipped(), key=lambda op: op.family)]
    files |= {f"docs/reference/operators/{family}.md": family_page(family, group) for family, group in families}
    files["docs/reference/operators/README.md"] = operators_index(dict(families))
    return {path: text.rstrip() + "\n" for path, text in files.items()}


def _read(path: str) -> str | None:
    target = ROOT / path
    return target.read_text(encoding="utf-8") if target.exists() else None


def complaints() -> list[str]:
    """Return the missing parts of the operators' declarations, one line each."""
    errors = [f"{op.op_name()} ({op.family}): {error}" for op in shipped() for error in _problems(op)]
    return [*errors, *frozen_problems()]


def _problems(op: type[Op]) -> Iterator[str]:
    titles = docstring_sections(op)
    for section in ("Shapes", "Source", *(["Example"] if op.executable else [])):
        if not any(title.startswith(section) for title in titles):
            yield f"its docstring has no {section} section"
    if not first_line(op).endswith("."):
        yield f"the first line of its docstring is no sentence: {first_line(op)!r}"
    yield from (f"the attribute {a.name!r} has no doc" for a in settable_attributes(op) if not a.doc)
    if op.executable and not reference().kernels(op):
        yield "it has no reference kernel"
    for name in [*op.attributes, *(operand.name for operand in op.operands)]:
        if name in TAKEN:
            yield f"{name!r} cannot be a parameter of its builder"


if __name__ == "__main__":
    sys.exit(main())
