"""The part of docs/engines.md that is generated: what was recorded of each engine's results for extreme values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from interposer.backends.engines.recorded import CONDITIONS, FOLDER, Recording

__all__ = ["with_recordings"]

BEGIN: Final = "<!-- Written by tools/generate.py from the recordings of tools/engine_matrix.py -->"
END: Final = "<!-- End of the generated part -->"

Cells = Mapping[str, Mapping[str, list[str]]]
"""Conditions by types by label, as in `Recording`."""


def with_recordings(page: str) -> str:
    """Return the page with its generated part, between two comments, written again."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_text()}\n{END}{after}"


def _text() -> str:
    recordings = {path.stem: Recording.of(path.stem) for path in sorted(FOLDER.glob("*.json"))}
    lines = ["| backend | recorded for | tried | wrong | refused | pairs refused |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    lines += [_summary(name, recording) for name, recording in recordings.items()]
    for refused, title in ((True, "Refused"), (False, "Not refused, although results differ")):
        lines += ["", f"{title}:", "", "| backend | type | values | layers |", "| --- | --- | --- | --- |"]
        lines += [row for name, recording in recordings.items() for row in _rows(name, recording.layers, refused)]
    lines += ["", "Pairs whose second layer is refused:", "", "| backend | type | values | pairs |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += [row for name, recording in recordings.items() for row in _rows(name, recording.pairs, True)]
    return "\n".join(lines) + "\n"


def _summary(backend: str, recording: Recording) -> str:
    cells = [conditions for types in recording.layers.values() for conditions in types.values()]
    wrong = sum(bool(conditions) for conditions in cells)
    pairs = sum(_is_refused(conditions) for types in recording.pairs.values() for conditions in types.values())
    refused = sum(map(_is_refused, cells))
    return f"| `{backend}` | {recording.title} {recording.version} | {len(cells)} | {wrong} | {refused} | {pairs} |"


def _is_refused(conditions: list[str]) -> bool:
    return any(CONDITIONS[name].is_refused for name in conditions)


def _counts(name: str, conditions: list[str], refused: bool) -> bool:
    return name in conditions and CONDITIONS[name].is_refused is refused


def _rows(backend: str, cells: Cells, refused: bool) -> Iterator[str]:
    """Yield a row for each type and each set of conditions, with the layers that are wrong under them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for label, types in cells.items():
        for kind, conditions in types.items():
            texts = [CONDITIONS[name].text for name in CONDITIONS if _counts(name, conditions, refused)]
            if texts:
                groups.setdefault((kind, ", ".join(texts)), []).append(label.replace(", ", " + "))
    for (kind, texts), labels in sorted(groups.items()):
        yield f"| `{backend}` | {kind} | {texts} | {', '.join(sorted(labels))} |"
