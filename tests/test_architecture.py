"""The house rules: who may import whom, what stands where, and what every operator must have."""

import ast
import gc
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple, get_type_hints

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PACKAGE = "interposer"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

# --- who may import whom ----------------------------------------------------------------------------------------------

CORE = {"_distribution", "_version", "core"}
OPERATORS = CORE | {"ops"}
GRAPH = OPERATORS | {"ir"}
API = GRAPH | {"kernels", "backend", "profiling", "pages"}
DIVIDED = API | {"report", "isolation", "plugins", "saved"}
EVERYTHING = DIVIDED | {
    "file_formats",
    "formats",
    "frontends",
    "rewriting",
    "writers",
    "optimizer",
    "runtime",
    "session",
}

# A part is a module or package directly in `interposer`; of `backends`, each backend is one. Every part may import
# itself, a part that is not listed here may not exist, and nobody imports a backend: they come by their entry points.
MAY_IMPORT: dict[str, set[str]] = {
    "_distribution": {"_version"},
    "_version": set(),
    "core": {"_distribution", "_version"},
    "include": set(),
    "ops": CORE,
    "ir": OPERATORS,
    "kernels": GRAPH,
    "formats": CORE,
    "rewriting": GRAPH,
    "writers": GRAPH | {"formats", "rewriting"},
    "frontends": GRAPH | {"kernels", "formats"},
    "frontends.nnapi.support": DIVIDED | {"frontends", "optimizer"},  # it asks backends, as a driver of NNAPI does
    "file_formats": GRAPH | {"formats", "frontends", "writers"},
    "pages": set(),
    "profiling": CORE | {"pages"},
    "saved": GRAPH,
    "report": GRAPH | {"pages", "saved"},
    "backend": GRAPH | {"kernels", "profiling"},
    "isolation": API,
    "plugins": API | {"isolation"},
    "backends": set(),
    "backends.*": GRAPH | {"kernels", "writers", "backend", "profiling"},  # as any plug-in
    "optimizer": DIVIDED | {"rewriting"},
    "runtime": DIVIDED,
    "session": EVERYTHING - {"session"},
    "testing": EVERYTHING,
    "quantization": EVERYTHING,
    "analysis": EVERYTHING | {"quantization"},
    "serving": EVERYTHING,
    "bridges": EVERYTHING,
    "cli": EVERYTHING | {"include", "testing", "analysis", "quantization", "serving", "bridges"},
    "batch": EVERYTHING,
    "__main__": {"_distribution", "cli"},
    # public names of modules elsewhere, under the paths that the documentation gives
    "types": {"core"},
    "errors": {"core"},
    "schema": {"core"},
    "dlpack": {"core"},
    "collected": {"core"},
    "tools": {"analysis"},
}

PUBLIC_NAMES = {"collected", "dlpack", "errors", "ir.compare", "schema", "tools.bench", "tools.compare", "types"}
"""Modules that export what another module has; nothing in the package imports them."""

# --- which part may import which package from outside -----------------------------------------------------------------

ANYWHERE = {"numpy"}
HOMES: dict[str, set[str]] = {
    "ai_edge_litert": {"backends.engines.litert", "bridges.litert.hosted"},
    "flatbuffers": {"writers.tables"},
    "fsspec": {"serving.remote"},
    "google": {"frontends.caffe.proto", "serving.protocol.grpc_messages"},
    "grpc": {"serving.grpc_service"},
    "ml_dtypes": {"core.types"},
    "nvtx": {"profiling.marks"},
    "opentelemetry": {"profiling.telemetry", "serving.tracing"},
    "onnxruntime": {"backends.engines.onnxruntime", "bridges.onnxruntime.hosted"},
    "openvino": {"backends.engines.openvino", "backends.engines.openvino_ir", "frontends.openvino"},
    "orjson": {"serving.protocol.json_text"},
    "torch": {"backends.engines.torch", "frontends.torch", "session.torch"},
    "onnx": {"frontends.onnx", "session.onnx_backend", "writers.onnx"},
    "PIL": {"kernels.images", "session.images"},
    "prometheus_client": {"serving.metrics"},
    "pytest": {"testing.conformance"},
    "rich": {"cli"},
    "cryptography": {"saved.signing"},
    "starlette": {"serving.http"},
    "uvicorn": {"serving.server"},
    "uvloop": {"serving.server"},
}
OPTIONAL = sorted(HOMES.keys() - {"ml_dtypes"})


class Import(NamedTuple):
    """One imported module, by its full name, and the line that asks for it."""

    line: int
    target: str


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((SRC / PACKAGE).rglob("*.py"))}
IMPORTABLE = [module for module in MODULES if module != f"{PACKAGE}.__main__"]


@pytest.fixture(scope="module", autouse=True)
def trees_are_no_garbage() -> Iterator[None]:
    """Turn the garbage collector off, which would take two thirds of the time in which all modules are parsed."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


CALLED_IMPORT = re.compile(r"\b(import_module|__import__)\b")


@cache
def source_of(module: str) -> str:
    return MODULES[module].read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(source_of(module))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a tree, without looking into expressions, which takes most of the time."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(tree, name, ()):
            yield child
            yield from statements(child)


@cache
def imports_in(module: str) -> tuple[Import, ...]:
    """Every import of a module."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return tuple(imports_of(tree_of(module), package, has_calls=bool(CALLED_IMPORT.search(source_of(module)))))


def imports_of(tree: ast.Module, package: str, *, has_calls: bool = True) -> Iterator[Import]:
    """Every import in a module of `package`: in functions, for type checkers only, or by a call."""
    for node in ast.walk(tree) if has_calls else statements(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_imports(node, package)
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "__import__"):
            yield from _called_imports(node)


def _from_imports(node: ast.ImportFrom, package: str) -> Iterator[Import]:
    above = package.split(".")
    above = above[: len(above) - node.level + 1] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    for alias in node.names:
        below = f"{base}.{alias.name}"
        known = below in MODULES or (base == PACKAGE and alias.name in MAY_IMPORT)
        yield Import(node.lineno, below if known else base)


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _called_imports(node: ast.Call) -> Iterator[Import]:
    match node.args:
        case [ast.Constant(value=str(name)), *_] if not name.startswith("."):
            yield Import(node.lineno, name)


def part_of(module: str) -> str:
    """Return ``ops`` for interposer.ops.pooling, and ``backends.reference`` for interposer.backends.reference.x."""
    _, *parts = module.split(".")
    if ".".join(parts) in MAY_IMPORT:
        return ".".join(parts)
    return ".".join(parts[: 2 if parts[:1] == ["backends"] else 1])


def broken_rule(module: str, target: str) -> str | None:
    """What forbids `module` to import `target`, in words; None if nothing does."""
    top = target.partition(".")[0]
    if top == PACKAGE:
        return _broken_inside(part_of(module), part_of(target))
    if top in sys.stdlib_module_names or top in ANYWHERE:
        return None
    if top not in HOMES:
        return f"{top} is not a dependency that HOMES lists"
    if any(f"{module}.".startswith(f"{PACKAGE}.{home}.") for home in HOMES[top]):
        return None
    return f"only {' and '.join(sorted(HOMES[top]))} may import {top}"


def _broken_inside(part: str, target: str) -> str | None:
    if part == target:
        return None
    rule = "backends.*" if part.startswith("backends.") else part
    if rule not in MAY_IMPORT:
        return f"MAY_IMPORT has no rule for {rule}"
    if target in MAY_IMPORT[rule]:
        return None
    return f"{part} may not import {target or PACKAGE} (it may: {', '.join(sorted(MAY_IMPORT[rule])) or 'nothing'})"


def test_the_rules_themselves_are_complete_and_without_cycles():
    assert set().union(*MAY_IMPORT.values()) <= MAY_IMPORT.keys()
    TopologicalSorter(MAY_IMPORT).prepare()


def test_every_part_of_the_package_has_a_rule():
    parts = {part_of(module) for module in MODULES} - {""}
    assert {part for part in parts if not part.startswith("backends.")} <= MAY_IMPORT.keys()


def test_modules_import_only_what_the_rules_allow():
    broken = []
    for module, path in MODULES.items():
        if module == PACKAGE:  # offers everything, and imports it when it is first asked for
            continue
        for line, target in imports_in(module):
            if rule := broken_rule(module, target):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {rule}")
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import interposer.ir.graph", "ops may not import ir"),
        ("from interposer import runtime", "ops may not import runtime"),
        ("from interposer import load", "ops may not import interposer"),
        ("from ..ir import graph", "ops may not import ir"),
        ("from .. import kernels", "ops may not import kernels"),
        ("def f():\n    from interposer.ir.graph import Value", "ops may not import ir"),
        ("if TYPE_CHECKING:\n    from interposer.ir.graph import Value", "ops may not import ir"),
        ("importlib.import_module('interposer.cli')", "ops may not import cli"),
        ("import interposer.backends.reference", "ops may not import backends.reference"),
        (
            "def f():\n    import onnx.helper",
            "only frontends.onnx and session.onnx_backend and writers.onnx may import onnx",
        ),
        ("import scipy", "scipy is not a dependency that HOMES lists"),
    ],
)
def test_a_forbidden_import_is_found_and_named(source, rule):
    [result] = imports_of(ast.parse(source), "interposer.ops")
    assert broken_rule("interposer.ops.pooling", result.target).startswith(rule)
    assert result.line == source.count("\n") + 1


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np",
        "import math",
        "from . import gather",
        "from ..core.types import Dim",
        "import interposer.core.schema",
    ],
)
def test_an_allowed_import_breaks_no_rule(source):
    [result] = imports_of(ast.parse(source), "interposer.ops")
    assert broken_rule("interposer.ops.pooling", result.target) is None


# --- cycles -----------------------------------------------------------------------------------------------------------

CYCLES: dict[frozenset[str], str] = {
    frozenset(
        {"ir.graph", "ir.printer", "ir.stored"}
    ): "`str` prints a Graph and pickle stores it; both read its layers",
}
"""Modules that import each other, and the reason; docs/architecture.md lists the same cycles."""


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, in functions and for type checkers included."""
    graph: dict[str, set[str]] = {}
    for module in MODULES.keys() - {PACKAGE}:
        targets = {target for _, target in imports_in(module)}
        graph[module] = targets & MODULES.keys() - {module, PACKAGE}
    return graph


def cycles_of(graph: Mapping[str, Set[str]]) -> list[frozenset[str]]:
    """Return the largest sets of nodes that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    cycles: list[frozenset[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        path.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
            if target in path:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            cut = path.index(node)
            cycles.append(frozenset(path[cut:]))
            del path[cut:]

    for node in graph:
        if node not in index:
            visit(node)
    return [cycle for cycle in cycles if len(cycle) > 1]


def test_modules_import_each_other_only_where_a_reason_is_given():
    cycles = [frozenset(name.removeprefix(f"{PACKAGE}.") for name in cycle) for cycle in cycles_of(import_graph())]
    assert sorted(map(sorted, cycles)) == sorted(map(sorted, CYCLES))


@pytest.mark.parametrize(
    ("graph", "cycles"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}, [{"b", "c"}]),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, [{"c", "d"}, {"a", "b"}]),
    ],
)
def test_a_cycle_of_imports_is_found(graph, cycles):
    assert sorted(map(sorted, cycles_of(graph))) == sorted(map(sorted, cycles))


def test_the_page_lists_the_cycles_with_their_reasons():
    listed = dict(re.findall(r"^\| (`[a-z_.`, ]+`) \| (.+) \|$", PAGE.partition("## Import cycles")[2], re.MULTILINE))
    expected = {", ".join(f"`{name}`" for name in sorted(cycle)): reason for cycle, reason in CYCLES.items()}
    assert expected.items() <= listed.items()


def test_the_page_says_what_each_package_has():
    packages = {part_of(module).partition(".")[0] for module in MODULES if module.count(".") > 1}
    packages |= {f"plugins/capi/{path.parent.name}" for path in (SRC / PACKAGE / "plugins/capi").glob("*/__init__.py")}
    listed = re.findall(r"^\| `([\w/]+)` \| ", PAGE.partition("## Packages")[2].partition("### Thin")[0], re.MULTILINE)
    assert sorted(packages - set(listed)) == []
    assert sorted(name for name in listed if not (SRC / PACKAGE / name).is_dir()) == []


def test_the_page_lists_the_thin_public_modules():
    listed = dict(re.findall(r"^\| `interposer\.([\w.]+)` \| `interposer\.([\w.]+)` \|$", PAGE, re.MULTILINE))
    assert listed.keys() == PUBLIC_NAMES
    for name, home in listed.items():
        assert {target for _, target in imports_in(f"{PACKAGE}.{name}")} == {f"{PACKAGE}.{home}"}


@pytest.mark.parametrize("package", ["frontends", "writers"])
def test_the_page_lists_the_folder_of_each_format(package):
    [row] = re.findall(rf"^\| `{package}` \| .*$", PAGE, re.MULTILINE)
    folders = [path.parent.name for path in (SRC / PACKAGE / package).glob("*/__init__.py")]
    assert sorted(name for name in folders if f"`{name}`" not in row) == []


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring."""
    first = function.body[0]
    docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_no_function_has_more_than_a_page_of_lines():
    long = []
    for module in MODULES:
        for node in statements(tree_of(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length_of(node) > 40:
                long.append(f"{module}.{node.name}: {length_of(node)} lines")
    assert long == []


def test_public_names_are_those_of_the_modules_that_they_stand_for():
    for name in PUBLIC_NAMES:
        public = importlib.import_module(f"{PACKAGE}.{name}")
        [target] = {target for _, target in imports_in(public.__name__)}
        home = importlib.import_module(target)
        assert public.__all__ == home.__all__
        assert all(getattr(public, item) is getattr(home, item) for item in home.__all__)


# --- modules ----------------------------------------------------------------------------------------------------------


def python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_has_a_docstring():
    assert [module for module in MODULES if not ast.get_docstring(tree_of(module))] == []


def test_no_name_that_a_package_imports_on_use_is_the_name_of_a_module_in_it():
    """Importing the module would replace the name."""
    packages = [path.parent for path in SRC.rglob("__init__.py") if "lazy_names(" in path.read_text(encoding="utf-8")]
    assert len(packages) >= 5
    for folder in packages:
        package = importlib.import_module(".".join(folder.relative_to(SRC).parts))
        modules = {path.stem for path in folder.iterdir()}
        assert not modules & (set(package.__all__) - set(vars(package).get("_MODULES", ()))), folder


def test_every_name_in_all_is_really_there():
    wrong = []
    for name in IMPORTABLE:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", [])
        wrong += [f"{name}.{export} is missing" for export in exported if not hasattr(module, export)]
        wrong += [f"{name}.{export} is listed twice" for export in set(exported) if exported.count(export) > 1]
    assert wrong == []


def public_functions() -> Iterator[tuple[str, object]]:
    """Yield the public functions of the package, and the methods of its public classes, with their names."""
    package = importlib.import_module(PACKAGE)
    members = [(name, getattr(package, name)) for name in package.__all__]
    for name, module in [member for member in members if inspect.ismodule(member[1])]:
        members += [(f"{name}.{export}", getattr(module, export)) for export in getattr(module, "__all__", [])]
    for name, member in members:
        methods = vars(member).items() if inspect.isclass(member) else [("", member)]
        for method, function in methods:
            function = function.fget if isinstance(function, property) else inspect.unwrap(function)
            if inspect.isfunction(function) and (not method.startswith("_") or method in ("__init__", "__call__")):
                yield f"{name}.{method}".rstrip("."), function


def test_the_type_hints_of_public_functions_can_be_evaluated():
    """Libraries that read type hints, such as those for command lines and dependency injection, need this."""
    wrong = {}
    for name, function in public_functions():
        try:
            get_type_hints(function)
        except (NameError, TypeError) as error:
            wrong[name] = str(error)
    assert wrong == {}


def test_importing_the_package_leaves_the_heavy_packages_alone():
    loaded = python("import interposer, sys; print(*sys.modules)").split()
    assert sorted(HOMES.keys() & set(loaded)) == []


def test_every_module_can_be_imported_where_no_optional_package_is_installed():
    """A front end or a backend whose package is missing must live to say so."""
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({OPTIONAL}))
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{{name}}: {{error}}")
"""
    assert python(code, *IMPORTABLE) == ""


# --- operators --------------------------------------------------------------------------------------------------------

SECTIONS = {
    "Shapes": re.compile(r"^\s*Shapes\b.*:", re.MULTILINE),
    "Source": re.compile(r"^\s*Source:", re.MULTILINE),
}
EXAMPLE = re.compile(r"^\s*Example:\n\s*>>> ", re.MULTILINE)


def shipped_operators() -> dict[str, type]:
    importlib.import_module("interposer.ops")
    registered = importlib.import_module("interposer.core.schema").registered_ops()
    return {name: op for name, op in registered.items() if op.__module__.startswith(f"{PACKAGE}.")}


def test_there_are_operators_to_check():
    assert shipped_operators()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_operator_documents_its(section):
    lacking = [name for name, op in shipped_operators().items() if not SECTIONS[section].search(op.__doc__ or "")]
    assert lacking == []


def test_every_executable_operator_documents_an_example():
    executable = {name: op for name, op in shipped_operators().items() if op.executable}
    assert [name for name, op in executable.items() if not EXAMPLE.search(op.__doc__ or "")] == []


@pytest.mark.parametrize("column", ["kernels", "testing/samples"])
def test_every_family_of_executable_operators_has_its_file_in(column):
    families = {op.__module__.rpartition(".")[2] for op in shipped_operators().values() if op.executable}
    assert sorted(name for name in families if not (SRC / PACKAGE / column / f"{name}.py").exists()) == []


# --- operators on the reference backend -------------------------------------------------------------------------------


def reference_kernels() -> Container[type]:
    """The operators that CpuRef has a kernel for."""
    return importlib.import_module("interposer.backends.reference").ReferenceBackend.kernels


def test_every_executable_operator_has_samples():
    samples_of = importlib.import_module("interposer.testing").samples_of
    assert [name for name, op in shipped_operators().items() if op.executable and not samples_of(op)] == []


def test_every_executable_operator_has_a_reference_kernel():
    kernels = reference_kernels()
    assert [name for name, op in shipped_operators().items() if op.executable and op not in kernels] == []
