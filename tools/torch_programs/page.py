"""`page`: the results of the comparison as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["TOLERANCE", "is_right", "page", "reasons"]

TOLERANCE: Final = 1e-3
_WAYS: Final = ("load", "compile")
_GROUPS: Final = {
    "text": "Text: transformers",
    "vision": "Images: transformers, torchvision and timm",
    "others": "Sound, series and plain modules",
    "families": "Further families of transformers",
    "kinds": "Further kinds of modules",
}
_HEAD: Final = """# PyTorch: programs

<!-- Written by `python -m tools.torch_programs --page`; do not edit. -->

Modules with random weights are called three times: twice with arguments of one shape, and once with another shape or
type. Each result is compared with that of PyTorch. This is done through `load` for the exported program, whose sizes
are open where the calls differ, and through `torch.compile`. Results agree if they differ by at most 1e-3 of the
largest element. Changes of arguments are compared too. [The guide](../torch.md) describes both ways.

"""


def is_right(program_result: Mapping[str, Any], index: int) -> bool:
    """Return True if call number `index` of one way agrees with PyTorch."""
    calls = program_result.get("calls", ())
    return len(calls) > index and isinstance(calls[index], float) and calls[index] <= TOLERANCE


def reasons(compile_result: Mapping[str, Any]) -> list[str]:
    """Return why graphs of a compiled module were left to PyTorch, each reason once."""
    return list(dict.fromkeys(str(fallback).rpartition(" (")[0] for fallback in compile_result.get("fallbacks", ())))


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page for results by the name of the program."""
    present = {name: program for name, program in results.items() if "absent" not in program}
    groups = {title: _members(present, group) for group, title in _GROUPS.items()}
    parts = [_HEAD, _summary({title: items for title, items in groups.items() if items}), _errors(present)]
    for title, items in groups.items():
        if items:
            parts += [f"## {title}\n\n", _programs(items)]
    return "".join(parts).rstrip() + "\n"


def _members(results: Mapping[str, Mapping[str, Any]], group: str) -> dict[str, Mapping[str, Any]]:
    return {name: program for name, program in sorted(results.items()) if program.get("group") == group}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _summary(groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    agree = [f"{way}: agree in call 1, 2, 3" for way in ("`load`", "`torch.compile`")]
    head = ["Programs", "Number", agree[0], "Fixed sizes", agree[1], "With graphs left to PyTorch"]
    rows = [_summarized(title, items.values()) for title, items in groups.items()]
    everything = [item for items in groups.values() for item in items.values()]
    explained = (
        "Fixed sizes are programs for which the export of PyTorch fixes a size, a type or a number, so that PyTorch's "
        "own exported\nprogram does not take the third call either, and `load` raises an error.\n\n"
    )
    return _table(head, [*rows, _summarized("All", everything)]) + explained


def _summarized(title: str, programs: Iterable[Mapping[str, Any]]) -> list[str]:
    listed = list(programs)
    agree = [
        ", ".join(str(sum(is_right(program.get(way, {}), call) for program in listed)) for call in range(3))
        for way in _WAYS
    ]
    fixed = sum("fixed" in program.get("load", {}).get("calls", ()) for program in listed)
    left = sum(bool(reasons(program.get("compile", {}))) for program in listed)
    return [title, str(len(listed)), agree[0], str(fixed), agree[1], str(left)]


def _errors(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sections on programs that are not loaded, and on graphs that are left to PyTorch."""
    loads = {name: program["load"]["calls"][0] for name, program in results.items() if "load" in program}
    refused = {name: str(call) for name, call in loads.items() if isinstance(call, str)}
    left = Counter(reason for program in results.values() for reason in reasons(program.get("compile", {})))
    text = ""
    if refused:
        text += "## Not loaded\n\n" + _table(
            ["Program", "Reason"], ([f"`{name}`", _cell(reason)] for name, reason in sorted(refused.items()))
        )
    if left:
        text += "## Left to PyTorch\n\n" + _table(
            ["Reason", "Programs"], ([_cell(reason), str(count)] for reason, count in sorted(left.items()))
        )
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")[:240]


def _programs(programs: Mapping[str, Mapping[str, Any]]) -> str:
    head = [
        "Program",
        "`load`: call 1, 2, 3",
        "Difference",
        "`torch.compile`: call 1, 2, 3",
        "Difference",
        "Left to PyTorch",
    ]
    rows = []
    for name, program in programs.items():
        ways = [program.get(way, {}) for way in _WAYS]
        cells = [cell for way in ways for cell in (_marks(way), _largest(way))]
        rows.append([f"`{name}`", *cells, str(len(ways[1].get("fallbacks", ()))) if ways[1].get("fallbacks") else ""])
    return _table(head, rows)


def _marks(way: Mapping[str, Any]) -> str:
    calls = way.get("calls", ())
    return ", ".join(call if call == "fixed" else _mark(call) for call in calls) if len(calls) > 1 else "not loaded"


def _mark(call: Any) -> str:
    if isinstance(call, str):
        return "error"
    return "agrees" if call <= TOLERANCE else "**differs**"


def _largest(way: Mapping[str, Any]) -> str:
    numbers = [call for call in way.get("calls", ()) if isinstance(call, float)]
    return f"{max(numbers):.0e}" if numbers else ""
