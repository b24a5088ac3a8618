"""Compare programs of PyTorch through `load` and through `torch.compile` with eager results, and time them.

    PYTHONPATH=... python -m tools.torch_programs --json results.json [--only bert,lstm] [--skip-compile]
    python -m tools.torch_programs --json results.json --only none --page docs/reference/torch-programs.md

Every program is called three times: twice with inputs of one shape, and once with another shape. Results agree if they
differ by at most 1e-3 of the largest element. The results of a run are added to those in the file. Packages such as
transformers, torchvision, timm and torchao are used where they are installed; programs that need an absent package are
listed as absent.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import interposer as ip
from interposer.session import torch as ours
from tools.torch_programs import families, kinds, others, text, vision  # noqa: F401 - they register programs
from tools.torch_programs.page import TOLERANCE, is_right, page, reasons
from tools.torch_programs.program import PROGRAMS, Call, Program

SECONDS = 300


class TooSlowError(Exception):
    """A program took more than `SECONDS`."""


@contextmanager
def patience():  # type: ignore[no-untyped-def]
    """Raise `TooSlowError` if the block takes too long."""

    def stop(*_: Any) -> None:
        raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def deviation(actual: Any, expected: Any) -> float:
    """Return the largest difference of two results, relative to the largest element; infinity if they do not match."""
    a, b = _leaves(actual), _leaves(expected)
    if len(a) != len(b):
        return float("inf")
    return max((_difference(x, y) for x, y in zip(a, b, strict=True)), default=0.0)


def _leaves(outputs: Any) -> list[Any]:
    return [
        leaf
        for leaf in pytree.tree_leaves(dict(outputs) if hasattr(outputs, "to_tuple") else outputs)
        if leaf is not None
    ]


def _difference(actual: Any, expected: Any) -> float:
    if not isinstance(expected, torch.Tensor):
        return 0.0 if actual == expected else float("inf")
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if not expected.numel():
        return 0.0
    kind = torch.complex128 if expected.is_complex() else torch.float64
    x, y = actual.to(kind), expected.to(kind)
    if not torch.equal(x.isnan(), y.isnan()):
        return float("inf")
    x, y = x.nan_to_num(0, 1e30, -1e30), y.nan_to_num(0, 1e30, -1e30)
    scale = y.abs().max().item() or 1.0
    return float((x - y).abs().max().item() / scale / _STEPS.get(expected.dtype, 1))


_STEPS = {torch.bfloat16: 16, torch.float16: 2}
"""How much larger the tolerance is for types with fewer bits."""


def eager_results(program: Program) -> list[Any]:
    """Return copies of what the module returns in the three calls, and what they leave in their arguments."""
    module = copy.deepcopy(program.module)
    results = []
    for call in program.calls:
        call = copy.deepcopy(call)
        results.append((copy.deepcopy(module(*call.args, **call.kwargs)), call))
    return results


def exported(program: Program) -> tuple[Any, bool]:
    """Return the exported program, and whether sizes that differ between the calls are open in it."""
    first, _, third = program.calls
    module = copy.deepcopy(program.module)
    sizes = _open_sizes(module, first, third)
    if sizes is not None:
        try:
            return torch.export.export(
                module, first.args, first.kwargs, dynamic_shapes=sizes, strict=program.strict
            ), True
        except Exception:
            pass
    return torch.export.export(copy.deepcopy(program.module), first.args, first.kwargs, strict=program.strict), False


def _open_sizes(module: Any, first: Call, third: Call) -> Any:
    """Return the dynamic shapes of an export, with open sizes where two calls differ; None if they do not."""

    def differing(a: Any, b: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return None
        pairs = enumerate(zip(a.shape, b.shape, strict=False))
        return {axis: torch.export.Dim.AUTO for axis, (x, y) in pairs if x != y}

    args = pytree.tree_map(differing, first.args, third.args)
    kwargs = pytree.tree_map(differing, first.kwargs, third.kwargs)
    if not any(isinstance(leaf, torch.export.dynamic_shapes._DimHint) for leaf in pytree.tree_leaves((args, kwargs))):
        return None
    signature = inspect.signature(module.forward)
    arguments = dict(signature.bind(*args, **kwargs).arguments)
    rest = next(
        (parameter.name for parameter in signature.parameters.values() if parameter.kind is parameter.VAR_KEYWORD), None
    )
    return arguments | arguments.pop(rest, {})


def through_load(program: Program, expected: list[Any]) -> dict[str, Any]:
    """Return the deviations of the three calls of a loaded program, or reasons, and the time to the first answer."""
    result: dict[str, Any] = {}
    start = time.perf_counter()
    try:
        exported_program, result["open"] = exported(program)
        result["export"] = time.perf_counter() - start
        start = time.perf_counter()
        model = ip.load(exported_program)
    except TooSlowError:
        raise
    except Exception as error:
        is_ours = "export" in result
        return result | {"calls": [_reason(error) if is_ours else f"PyTorch cannot export it: {_reason(error)}"]}
    result["calls"] = [
        _called(model, call, *expected_call) for call, expected_call in zip(program.calls, expected, strict=True)
    ]
    result["first"] = time.perf_counter() - start
    if isinstance(result["calls"][0], float):
        arguments = copy.deepcopy(program.calls[0])
        result["time"] = _quickest(lambda: model(*arguments.args, **arguments.kwargs))
    for index, call in enumerate(program.calls):
        if not isinstance(result["calls"][index], float) and not _is_taken(exported_program, call):
            result["calls"][index] = "fixed"
    return result


def _is_taken(exported_program: Any, call: Call) -> bool:
    """Return True if PyTorch itself runs an exported program with these arguments: their sizes are not fixed in it."""
    arguments = copy.deepcopy(call)
    try:
        exported_program.module()(*arguments.args, **arguments.kwargs)
    except Exception:
        return False
    return True


def _called(function: Any, call: Call, expected: Any, after: Call) -> float | str:
    arguments = copy.deepcopy(call)
    try:
        value = function(*arguments.args, **arguments.kwargs)
    except TooSlowError:
        raise
    except Exception as error:
        return _reason(error)
    changed = deviation((arguments.args, arguments.kwargs), (after.args, after.kwargs))
    return max(deviation(value, expected), changed)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def _quickest(function: Callable[[], Any], seconds: float = 0.1) -> float:
    """Return the least time of several calls, in seconds."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        try:
            function()
        except (RuntimeError, ip.InterposerError):  # a cache is full
            break
        best = min(best, time.perf_counter() - start)
    return best


def through_compile(program: Program, expected: list[Any]) -> dict[str, Any]:
    """Return the deviations of the three calls of a compiled module, and the graphs that PyTorch has run itself."""
    torch._dynamo.reset()
    ours.clear_fallbacks()
    module = copy.deepcopy(program.module)
    function = torch.compile(module, backend="interposer")
    start = time.perf_counter()
    calls = [
        _called(function, call, *expected_call) for call, expected_call in zip(program.calls, expected, strict=True)
    ]
    first = time.perf_counter() - start
    fallbacks = [f"{fallback.reason[:300]} ({fallback.nodes} operators)" for fallback in ours.fallbacks()]
    arguments = copy.deepcopy(program.calls[0])
    result = {"calls": calls, "first": first, "fallbacks": fallbacks}
    if isinstance(calls[0], float):
        result["time"] = _quickest(lambda: function(*arguments.args, **arguments.kwargs))
    return result


def compared(name: str, with_compile: bool) -> dict[str, Any]:
    """Return what became of a program."""
    torch.manual_seed(0)
    try:
        with patience():
            program = PROGRAMS[name]()
    except Exception as error:
        return {"absent": _reason(error)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = eager_results(program)
        except Exception as error:
            return {"absent": f"PyTorch cannot run it: {_reason(error)}"}
        module, arguments = copy.deepcopy(program.module), copy.deepcopy(program.calls[0])
        group = PROGRAMS[name].__module__.rpartition(".")[2]
        result: dict[str, Any] = {
            "group": group,
            "eager": _quickest(lambda: module(*arguments.args, **arguments.kwargs)),
        }
        for way, function in (("load", through_load), ("compile", through_compile)):
            if way == "compile" and not with_compile:
                continue
            try:
                with patience():
                    result[way] = function(program, expected)
            except TooSlowError:
                result[way] = {"calls": [f"it takes more than {SECONDS} s"]}
            except Exception as error:
                result[way] = {"calls": [_reason(error)]}
    return result


def shown(result: dict[str, Any]) -> str:
    """Return one line about what became of a program."""
    if "absent" in result:
        return f"absent: {result['absent'][:120]}"
    parts = []
    for way in ("load", "compile"):
        way_result = result.get(way)
        if way_result is not None:
            calls = " ".join(_mark(call) for call in way_result["calls"])
            extra = (
                f" [{len(way_result['fallbacks'])} left to PyTorch: {way_result['fallbacks'][0][:160]}]"
                if way_result.get("fallbacks")
                else ""
            )
            parts.append(f"{way}: {calls}{extra}")
    return "; ".join(parts)


def _mark(call: float | str) -> str:
    if isinstance(call, str):
        return call if call == "fixed" else f"<{call[:200]}>"
    return "ok" if call <= TOLERANCE else f"WRONG({call:.1e})"


def main() -> int:
    """Compare the programs of the command line; return 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs with commas between them")
    parser.add_argument("--json", type=Path, help="the file for the results, which may have some already")
    parser.add_argument("--page", type=Path, help="the file for a page about all results in the file --json")
    parser.add_argument("--skip-compile", action="store_true", help="compare what load makes only")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(PROGRAMS)
    results = json.loads(args.json.read_text(encoding="utf-8")) if args.json and args.json.exists() else {}
    for name in (name for name in names if name != "none"):
        results[name] = compared(name, not args.skip_compile)
        print(f"{name:24} {shown(results[name])}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(summary(results))
    if args.page:
        args.page.write_text(page(results), encoding="utf-8")
    return int(any("WRONG" in shown(program_result) for program_result in results.values()))


def summary(results: dict[str, Any]) -> str:
    """Return how many programs agree at each call, and how many graphs were left to PyTorch."""
    present = {name: program_result for name, program_result in results.items() if "absent" not in program_result}
    lines = [f"{len(present)} programs, {len(results) - len(present)} absent"]
    for way in ("load", "compile"):
        ways = [program_result[way] for program_result in present.values() if way in program_result]
        right = [sum(is_right(way_result, index) for way_result in ways) for index in range(3)]
        lines.append(f"{way}: {right[0]}, {right[1]} and {right[2]} of {len(ways)} agree at the three calls")
    left = Counter(
        reason for program_result in present.values() for reason in reasons(program_result.get("compile", {}))
    )
    lines += [f"  {count} programs: {reason}" for reason, count in left.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
