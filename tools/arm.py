"""Build, test and measure CpuAcc for 64-bit Arm on an x86 machine, by emulation.

    python tools/arm.py root       # fetch the emulator, a root folder of Debian for Arm with Python, and the packages
    python tools/arm.py counter    # build an emulator that counts executed instructions
    python tools/arm.py build      # cross-compile the native parts and their unit tests
    python tools/arm.py test       # build, and run unit tests, conformance cases, models and random networks
    python tools/arm.py count      # compare executed instructions with the recorded ones; `--record` writes them
    python tools/arm.py count --networks bert_small,lstm     # the same, of networks of the benchmark
    python tools/arm.py run --cpu neoverse-n1 -- -m interposer backends

The first two commands need the network and once take some minutes. Their results lie in a cache folder of 1.1 GB,
``$INTERPOSER_ARM`` or ``~/.cache/interposer-arm``. They use programs of Debian and Ubuntu::

    apt install g++-aarch64-linux-gnu mmdebstrap ninja-build cmake                # root, build
    apt install gcc libglib2.0-dev pkg-config dpkg-dev                           # counter

`test` and `count` report what is missing, and exit with 0.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = Path(
    os.environ.get("INTERPOSER_ARM") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "interposer-arm")
).expanduser()
SYSTEM: Final = CACHE / "root"
PACKAGES: Final = CACHE / "packages"
EMULATOR: Final = CACHE / "emulator" / "qemu-aarch64"
COUNTING_EMULATOR: Final = CACHE / "counter" / "qemu-aarch64"
PLUGIN: Final = CACHE / "counter" / "count.so"
BUILD: Final = ROOT / "build" / "arm"
SITE: Final = BUILD / "site"
RECORDED: Final = ROOT / "native" / "arm" / "counts.txt"

RELEASE: Final = "trixie"
"""The release of Debian that the root folder and the emulator are taken from."""
PYTHON: Final = "3.13"
"""The version of Python in that release."""
WHEELS: Final = ("numpy", "ml_dtypes", "onnx", "flatbuffers", "pytest", "hypothesis", "pillow", "rich")
PEERS: Final = ("onnxruntime", "ai-edge-litert", "openvino")
"""Engines that `count --engine` compares with."""
ARM_NN: Final = ("libarmnn-cpuacc-backend33", "libarmnntfliteparser24t64", "python3-pyarmnn")
"""Arm NN, another engine that `count --engine` compares with, is in the root folder."""
ENGINES: Final = ("interposer", "litert", "onnxruntime", "openvino", "armnn")
PROCESSORS: Final = {"cortex-a53": "neon", "neoverse-n1": "dotprod", "neoverse-n2": "i8mm"}
"""Emulated processors, and the level of kernels that each of them chooses."""
ALLOWED: Final = 1.02
"""A count above the recorded one by more than this factor is a failure."""


class MissingError(Exception):
    """Something that a command needs is not installed; the text says what, and how to get it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of the module docstring and return its exit status."""
    args = _parser().parse_args(arguments)
    try:
        return int(args.command(args) or 0)
    except MissingError as missing:
        print(f"not run for Arm: {missing}")
        return int(args.command is _run)
    except subprocess.CalledProcessError as error:
        print(f"{shlex.join(map(str, error.cmd))}: exit status {error.returncode}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    for name, command in (("root", _root), ("counter", _counter), ("build", _build)):
        commands.add_parser(name).set_defaults(command=command)
    test = commands.add_parser("test")
    test.add_argument("--networks", type=int, default=200, help="random networks for each processor")
    test.add_argument("--every", type=int, default=97, help="one of so many conformance samples is tried")
    count = commands.add_parser("count")
    count.add_argument("--record", action="store_true", help="replace the recorded counts, and compare nothing")
    count.add_argument("--engine", default="interposer", choices=ENGINES)
    count.add_argument(
        "--networks",
        type=lambda text: text.split(","),
        default=[],
        help="networks of the benchmark, separated by commas, that are counted instead of the models and layers",
    )
    run = commands.add_parser("run")
    run.add_argument("--blocks", type=int, default=0, help="print the blocks of code that executed most between marks")
    run.add_argument("arguments", nargs="+", help="arguments of Python, after --")
    for parsed, command in ((test, _test), (count, _count), (run, _run)):
        parsed.add_argument("--cpu", default=",".join(PROCESSORS), help="emulated processors, separated by commas")
        parsed.set_defaults(command=command)
    return parser


# ---- What is fetched ------------------------------------------------------------------------------------------------


def _root(args: argparse.Namespace) -> None:
    """Fetch what is not yet in the cache."""
    if not EMULATOR.exists():
        _fetch_emulator()
    if not _system_python().exists():
        _fetch_system()
    missing = [name for name in (*WHEELS, *PEERS) if not any(PACKAGES.glob(f"{name.replace('-', '_')}-*.dist-info"))]
    if missing:
        _fetch_packages(missing)
    print(f"the emulator, the root folder and the packages are in {CACHE}")


def _fetch_emulator() -> None:
    folder = _fresh(CACHE / "emulator.new")
    _apt("download", "qemu-user", folder=folder)
    [package] = folder.glob("qemu-user_*.deb")
    _call("dpkg", "-x", package, folder / "files")
    EMULATOR.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "files" / "usr" / "bin" / "qemu-aarch64", EMULATOR)
    shutil.rmtree(folder)


def _fetch_system() -> None:
    """Make the root folder: extracted packages suffice, because only the emulator reads it."""
    _needs("mmdebstrap", "mmdebstrap")
    include_option = f"--include=python{PYTHON},libstdc++6,libgomp1,libgtest-dev,{','.join(ARM_NN)}"
    shutil.rmtree(SYSTEM, ignore_errors=True)
    _call("mmdebstrap", "--quiet", "--arch=arm64", "--variant=extract", include_option, RELEASE, SYSTEM)
    if not (SYSTEM / "lib").exists():
        (SYSTEM / "lib").symlink_to("usr/lib")


def _fetch_packages(names: Sequence[str]) -> None:
    tags = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(34, 16, -1)]
    tags += ["--platform=manylinux2014_aarch64", f"--python-version={PYTHON}", "--implementation=cp"]
    tags += [f"--abi=cp{PYTHON.replace('.', '')}", "--abi=abi3", "--abi=none", "--only-binary=:all:"]
    _call(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", PACKAGES, *tags, *names)


def _counter(args: argparse.Namespace) -> None:
    """Build the emulator with plugins, which Debian's package leaves out, and the plugin that counts."""
    if not COUNTING_EMULATOR.exists():
        _build_emulator()
    _build_plugin(_emulator_source())
    print(f"the counting emulator is in {COUNTING_EMULATOR.parent}")


def _emulator_source() -> Path:
    for folder in CACHE.glob("source/qemu-*/"):
        return folder
    folder = _fresh(CACHE / "source")
    _apt("source", "--download-only", "qemu", folder=folder)
    [archive] = folder.glob("qemu_*.orig.tar.xz")
    _call("tar", "-xf", archive, "-C", folder)
    return next(folder.glob("qemu-*/"))


def _build_emulator() -> None:
    source = _emulator_source()
    tools = CACHE / "source" / "venv"
    venv.create(tools, with_pip=True, clear=True)
    python = tools / "bin" / "python"
    _call(python, "-m", "pip", "install", "--quiet", "meson<1.8", "pycotap", "tomli", "setuptools")
    build = _fresh(source / "build")
    words = "--target-list=aarch64-linux-user --enable-plugins --without-default-features --disable-install-blobs"
    words += " --disable-system --disable-tools --disable-docs --disable-rust"
    _call("../configure", *words.split(), f"--python={python}", folder=build)
    _call("ninja", "qemu-aarch64", folder=build)
    COUNTING_EMULATOR.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(build / "qemu-aarch64", COUNTING_EMULATOR)


def _build_plugin(source: Path) -> None:
    flags = subprocess.check_output(["pkg-config", "--cflags", "--libs", "glib-2.0"], text=True).split()
    words = ["-O2", "-Wall", "-fPIC", "-shared", "-o", PLUGIN, ROOT / "native" / "arm" / "count.c"]
    _call("gcc", *words, "-I", source / "include" / "qemu", *flags)


def _apt(*words: str, folder: Path) -> None:
    """Call apt-get in a folder, with the release of the root folder as its only source."""
    apt_folder = CACHE / "apt"
    (apt_folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    lines = [f"{kind} {key} http://deb.debian.org/debian {RELEASE} main\n" for kind in ("deb", "deb-src")]
    (apt_folder / "sources.list").write_text("".join(lines), encoding="utf-8")
    settings = {"Dir::Etc::sourcelist": apt_folder / "sources.list", "Dir::Etc::sourceparts": "-"}
    settings |= {"Dir::State::lists": apt_folder / "lists", "Dir::Cache": apt_folder}
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _call(*command, "update")
    _call(*command, *words, folder=folder)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _call(*words: str | Path, folder: Path | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, cwd=folder)


def _needs(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise MissingError(f"{program} is not installed (apt install {package})")


# ---- What is built --------------------------------------------------------------------------------------------------


def _build(args: argparse.Namespace) -> None:
    """Cross-compile the native parts and the unit tests, and lay out a package that the emulated Python imports."""
    _needs("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    _needs("cmake", "cmake")
    googletest = SYSTEM / "usr" / "src" / "googletest" / "googletest"
    defines = {
        "CMAKE_TOOLCHAIN_FILE": ROOT / "native" / "arm" / "aarch64.cmake",
        "Python3_INCLUDE_DIR": sysconfig.get_path("include"),  # the stable interface is the same on all processors
        "NATIVE_TESTS": "ON" if googletest.is_dir() else "OFF",
        "NATIVE_GOOGLETEST": googletest,
    }
    words = [f"-D{name}={value}" for name, value in defines.items()]
    _call("cmake", "-S", ROOT / "native", "-B", BUILD / "native", "-G", "Ninja", *words)
    _call("cmake", "--build", BUILD / "native")
    _lay_out()


def _lay_out() -> None:
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "native")
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "interposer", SITE / "interposer", ignore=ignored)
    _call("cmake", "--install", BUILD / "native", "--prefix", SITE)
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    metadata = SITE / "interposer_nn-0.dist-info"
    metadata.mkdir()
    metadata.joinpath("METADATA").write_text(f"Name: {project['name']}\nVersion: 0\n", encoding="utf-8")
    metadata.joinpath("entry_points.txt").write_text("".join(_entry_points(project["entry-points"])), encoding="utf-8")


def _entry_points(groups: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for group, points in groups.items():
        yield f"[{group}]\n"
        yield from (f"{name} = {target}\n" for name, target in points.items())


# ---- What is run ----------------------------------------------------------------------------------------------------

NO_CHILDREN: Final = "it starts programs for Arm, which needs Linux 6.7 and user namespaces, or qemu-user-binfmt"
WITH_CHILDREN: Final = r"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":qemu-aarch64:M::$magic:$mask:$1:F" > /proc/sys/fs/binfmt_misc/register || exit
shift
exec "$@"
"""
"""Run a command in a namespace where programs for Arm start by themselves; the machine is left as it is."""
INSTALLED_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
"""Exists if this machine's own emulator starts programs for Arm."""


def _run(args: argparse.Namespace) -> int:
    """Run the emulated Python with some arguments."""
    _require()
    plugin = f"file={PLUGIN},blocks={args.blocks}" if PLUGIN.exists() else ""
    if args.blocks and not COUNTING_EMULATOR.exists():
        raise MissingError("the counting emulator is not built (make arm-root)")
    settings = {"QEMU_PLUGIN": plugin} if args.blocks else {}
    emulator = COUNTING_EMULATOR if args.blocks else EMULATOR
    words = [emulator, _system_python(), *args.arguments]
    return max(_emulated(words, cpu, **settings).returncode for cpu in args.cpu.split(","))


def _test(args: argparse.Namespace) -> int:
    """Run all checks at each processor, and report each of them in a line."""
    _require()
    _build(args)
    failures, with_children = 0, _starts_children()
    for cpu in args.cpu.split(","):
        for name, words, by_itself in _checks(args):
            outcome = f"not run: {NO_CHILDREN}"
            if with_children or not by_itself:
                failed = _emulated(words, cpu, by_itself=by_itself).returncode != 0
                failures += failed
                outcome = "FAILED" if failed else "passed"
            print(f"{cpu:12} {PROCESSORS.get(cpu, ''):8} {name}: {outcome}", flush=True)
    return int(failures > 0)


def _checks(args: argparse.Namespace) -> Iterator[tuple[str, list[str | Path], bool]]:
    """Yield the name of each check, its command, and whether it starts other programs for Arm."""
    python = _system_python()
    yield "unit tests", [EMULATOR, BUILD / "native" / "tests" / "native_tests", "--gtest_brief=1"], False
    yield "demonstration", [EMULATOR, python, "-m", "interposer", "run", *_digits()], False
    yield "models", [EMULATOR, python, ROOT / "tools" / "arm_models.py", "check"], False
    strict = ["-m", "tests.backends.cpuacc.strict", "results/*", str(args.every)]
    yield "conformance cases", [python, *strict], True
    networks = [ROOT / "tools" / "arm_models.py", "networks", str(args.networks)]
    yield "random networks", [python, *networks], True


def _digits() -> list[str]:
    folder = ROOT / "examples" / "digits"
    return [str(folder / "digits.onnx"), "--input", str(folder / "seven.png"), "--top", "1"]


def _count(args: argparse.Namespace) -> int:
    """Count the instructions of each model and kernel at each processor."""
    _require()
    if not (COUNTING_EMULATOR.exists() and PLUGIN.exists()):
        raise MissingError("the counting emulator is not built (make arm-root)")
    if args.engine == "interposer":
        _build(args)
    files = _written(args.networks)
    counts = {cpu: _counted(cpu, args.engine, files) for cpu in args.cpu.split(",")}
    if args.engine != "interposer":
        _print_table(counts)
        return 0
    if args.record:
        _print_table(counts)
        RECORDED.write_text(_table(merged(_recorded(), counts)), encoding="utf-8")
        return 0
    return compared(counts, _recorded())


def _written(names: Sequence[str]) -> list[Path]:
    """Return the ONNX files of networks of the benchmark.

    Beside each file are its inputs, and a TensorFlow Lite file if that format can express the network.
    """
    if not names:
        return []
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    from benchmarks.engines.cases import prepare  # noqa: PLC0415 - it needs packages that no other command does

    return [prepare(name, 1, None, BUILD / "networks", (".onnx", ".tflite")).path for name in names]


def _counted(cpu: str, engine: str, files: Sequence[Path]) -> dict[str, int]:
    """Return the executed instructions of one inference by its name: of these files, or of all models and layers."""
    program = ROOT / "tools" / "arm_models.py"
    words: list[str | Path] = [COUNTING_EMULATOR, _system_python(), program, "count", engine, *files]
    completed = _emulated(words, cpu, capture=True, QEMU_PLUGIN=f"file={PLUGIN}", INTERPOSER_NUM_THREADS="1")
    if completed.returncode:
        print(re.sub(r"^COUNT .*\n", "", completed.stderr, flags=re.MULTILINE), file=sys.stderr)
        completed.check_returncode()
    names = dict(enumerate(re.findall(r"^NAME (\S+)$", completed.stdout, re.MULTILINE)))
    counts: dict[str, int] = {}
    for number, count in re.findall(r"^COUNT (\d+) (\d+)$", completed.stderr, re.MULTILINE):
        name = names[int(number)]
        counts[name] = min(int(count), counts.get(name, int(count)))  # the garbage collector may run in one of them
    return counts


def _emulated(
    words: Sequence[str | Path], cpu: str, *, by_itself: bool = False, capture: bool = False, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command whose program is for Arm, or starts with the emulator, at an emulated processor."""
    paths = [SITE, PACKAGES, ROOT]
    environment = os.environ | settings | {"QEMU_CPU": cpu, "QEMU_LD_PREFIX": str(SYSTEM)}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    environment["INTERPOSER_CACHE_DIR"] = str(BUILD / "cache" / cpu)
    command = [str(word) for word in words]
    if by_itself and not INSTALLED_BINFMT.exists():
        command = _with_children(command)
    return subprocess.run(command, env=environment, check=False, text=True, capture_output=capture, cwd=ROOT)


def _with_children(command: Sequence[str]) -> list[str]:
    return ["unshare", "-Urm", "sh", "-c", WITH_CHILDREN, "sh", str(EMULATOR), *command]


def _starts_children() -> bool:
    return INSTALLED_BINFMT.exists() or subprocess.run(_with_children(["true"]), check=False).returncode == 0


def _require() -> None:
    """Raise `MissingError` unless the emulator, the root folder and the packages are in the cache."""
    if platform.system() != "Linux":
        raise MissingError(f"the emulator runs on Linux; this is {platform.system()}")
    for description, path in (
        ("emulator", EMULATOR),
        ("root folder", _system_python()),
        ("package NumPy", PACKAGES / "numpy"),
    ):
        if not path.exists():
            raise MissingError(f"the {description} is not in {CACHE} (make arm-root)")


def _system_python() -> Path:
    return SYSTEM / "usr" / "bin" / f"python{PYTHON}"


# ---- Counts ---------------------------------------------------------------------------------------------------------

Counts = Mapping[str, Mapping[str, int]]
"""Executed instructions by processor and name."""


def _table(counts: Counts) -> str:
    names = list(dict.fromkeys(name for row in counts.values() for name in row))
    lines = [f"{'':40}" + "".join(f"{cpu:>14}" for cpu in counts)]
    lines += [f"{name:40}" + "".join(f"{row.get(name, 0):>14}" for row in counts.values()) for name in names]
    return "\n".join(lines) + "\n"


def _print_table(counts: Counts) -> None:
    print(_table(counts), end="")


def _recorded() -> dict[str, dict[str, int]]:
    head, *lines = RECORDED.read_text(encoding="utf-8").splitlines()
    rows = {name: [int(count) for count in rest] for name, *rest in map(str.split, lines)}
    return {cpu: {name: row[n] for name, row in rows.items()} for n, cpu in enumerate(head.split())}


def merged(recorded: Counts, counts: Counts) -> dict[str, dict[str, int]]:
    """Return the new counts, and recorded ones of processors and names that were not counted now."""
    return {cpu: {**recorded.get(cpu, {}), **counts.get(cpu, {})} for cpu in dict.fromkeys([*recorded, *counts])}


def compared(counts: Counts, recorded: Counts) -> int:
    """Print what needs more instructions than recorded; return 1 if anything does, or is absent."""
    failures = lower = 0
    for cpu, row in counts.items():
        for name, count in row.items():
            before = recorded.get(cpu, {}).get(name, 0)
            lower += count * ALLOWED < before
            if count <= before * ALLOWED:
                continue
            failures += 1
            change = f"{count / before - 1:+.1%}" if before else "not recorded"
            print(f"{cpu} {name}: {count} instructions, {before} recorded ({change})")
    print(f"{sum(map(len, counts.values()))} counts compared with {RECORDED.name}: {failures} too high, {lower} lower")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
