"""``interposer new-backend``: create a small backend project that builds, runs one layer and conforms."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from interposer import include
from interposer.cli.arguments.new_backend import ASYNCHRONOUS, COPIED, configure
from interposer.cli.tables import say
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.plugins import process_registry

__all__ = ["configure", "execute"]

TEMPLATES: Final = Path(__file__).parent / "templates"
NATIVE_STEPS: Final = ("make", "make check")
PACKAGE_STEPS: Final = ("pip install .",)
"""What follows for a native backend in a package of Python."""
NATIVE_PACKAGE: Final = "native-package"
"""The folder of the templates for such a package."""
STEPS: Final = {"python": ("pip install -e '.[test]'", "pytest -q")}
QUEUES: Final = {
    "queue_header": '#include "interposer/queues.hpp"\n',
    "queue_extension": """
  /// Runs are submitted to queues. The thread of a queue executes them; `Run::cancelled` says when one should end.
  const void* extension(std::string_view name) override {
    return name == IPR_EXT_ASYNC ? ipr::queues<ipr::Queue>() : nullptr;
  }
""",
    "queue_file": " include/interposer/queues.hpp",
    "queue_flag": " -pthread",
    "queue_library": """find_package(Threads REQUIRED)
target_link_libraries({package} PRIVATE Threads::Threads)
""",
    "queue_advice": """- Runs are submitted to queues, each with a thread of its own: `extension` returns the table of
  `ipr::Queue`. Derive from that class to give each queue a stream of the device, or to interrupt a run.
  The extension is experimental.
""",
}
"""What an asynchronous backend in C++ has besides; ``{package}`` stands for the package."""
QUEUES_IN_C: Final = {
    "queue_header": '#include "queues.h"\n',
    "queue_extension": "  if (strcmp(name, IPR_EXT_ASYNC) == 0) return &queues;\n",
    "queue_file": " src/queues.h",
    "queue_advice": """- Runs are submitted to queues, each with a thread of its own: see `src/queues.h`. For a
  device with queues of its own, replace `serve` and `run_task`. The extension is experimental.
""",
}
"""What an asynchronous backend in C has besides the file of its queues."""
QUEUES_IN_RUST: Final = {
    "queue_header": "mod queues;\n",
    "queue_extension": """
    /// Runs are submitted to queues. The thread of a queue executes them; `Run::cancelled` says when one should end.
    fn extension(&self, name: &str) -> Option<ExtensionTable> {
        queues::table(name)
    }
""",
    "queue_file": " src/queues.rs",
    "queue_advice": """- Runs are submitted to queues, each with a thread of its own: see `src/queues.rs`. For a
  device with queues of its own, replace `serve` and `run_task`. The extension is experimental.
""",
}
"""What an asynchronous backend in Rust has besides the file of its queues."""
TEXTS: Final = {"cpp": QUEUES, "c": QUEUES_IN_C, "rust": QUEUES_IN_RUST}
"""For each language of asynchronous backends, the texts that replace ``{{queue_...}}`` in its templates."""
LONGEST: Final = 64
FILE_NAME: Final = "<vendor>_<name>_backend.so"


def execute(args: argparse.Namespace) -> None:
    """Write the project, and print the next steps.

    Raises:
        InvalidArgumentError: the name is invalid, or the folder is not empty.
    """
    _check_name(args.name)
    _check_word("vendor", args.vendor)
    if args.asynchronous and args.lang not in TEXTS:
        raise InvalidArgumentError(
            f"--async adds queues to a backend in C, C++ or Rust, and not to --lang {args.lang}; "
            f"use --lang {', '.join([*TEXTS][:-1])} or {[*TEXTS][-1]}"
        )
    folder = Path(f"{args.name.lower()}-backend") if args.folder is None else args.folder
    _check_folder(folder)
    for path in _whole(folder, args, _words(args)):
        say(str(path))
    print(f"\nNow, in {folder}:")
    for step in (*STEPS.get(args.lang, NATIVE_STEPS), *(PACKAGE_STEPS if _is_native_package(args) else ())):
        print(f"  {step}")
    print("See README.md there for the next steps.")


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    _check_word("name", name)
    if not name[0].isalpha():
        raise InvalidArgumentError(f"the name {name!r} must begin with a letter, as it is part of the name of a class")
    if name == "Unknown":
        raise InvalidArgumentError("no backend may have the id 'Unknown'; choose another name")
    existing = process_registry().taken_by(name)
    if existing is not None:
        raise InvalidArgumentError(
            f"there is a backend with the id {name!r} already ({existing}), and only the first of one id is loaded; "
            "choose another name"
        )


def _check_word(subject: str, word: str) -> None:
    if not word:
        raise InvalidArgumentError(f"the {subject} is empty; expected letters and digits, such as Npu")
    invalid_characters = sorted(set(re.sub(r"[A-Za-z0-9]", "", word)))
    if invalid_characters:
        raise InvalidArgumentError(
            f"the {subject} {word!r} has {', '.join(map(repr, invalid_characters))} in it; "
            f"only the letters A to Z and digits may be in it, as shared objects are named {FILE_NAME}"
        )
    if len(word) > LONGEST:
        raise InvalidArgumentError(f"the {subject} has {len(word)} letters; {LONGEST} are the most")


def _check_folder(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidArgumentError(f"the folder {folder} is not empty, and nothing is overwritten; name another one")
    if folder.exists() and not folder.is_dir():
        raise InvalidArgumentError(f"{folder} is there and is no folder; name another one")


def _is_native_package(args: argparse.Namespace) -> bool:
    """Return True for a native backend whose users install a package of Python, as they call it from a host."""
    return bool(args.bridge) and args.lang != "python"


# --- the project ------------------------------------------------------------------------------------------------------


def _words(args: argparse.Namespace) -> dict[str, str]:
    """Return the texts that replace ``{{key}}`` in the project templates and in their paths, by key.

    Users of the bridge into ONNX Runtime need the package onnx, which reads its graphs.
    """
    name, vendor = args.name, args.vendor
    queues_in = args.lang if args.asynchronous else ""
    requirement = "interposer-nn[onnx]" if "onnxruntime" in args.bridge else "interposer-nn"
    stem = f"{vendor}_{name}_backend"
    package = f"{name.lower()}_backend"
    return {
        "name": name, "vendor": vendor, "class": f"{name[0].upper()}{name[1:]}Backend", "package": package,
        "dashed": package.replace("_", "-"), "stem": stem, "file": f"{stem}.so", "requirement": requirement,
        **dict.fromkeys(QUEUES, ""),
        **{key: text.replace("{package}", package) for key, text in TEXTS.get(queues_in, {}).items()},
    }  # fmt: skip


def _whole(folder: Path, args: argparse.Namespace, words: Mapping[str, str]) -> list[Path]:
    """Write all files of the project that `args` describe to `folder`, and return their paths.

    `words` are the replacements of ``{{key}}`` in the templates. After an error, everything that was written is
    deleted.
    """
    has_existed = folder.is_dir()
    try:
        copied_files = COPIED[args.lang] | (ASYNCHRONOUS.get(args.lang, {}) if args.asynchronous else {})
        queues = [f"{args.lang}-async"] if args.asynchronous else []
        package = [NATIVE_PACKAGE] if _is_native_package(args) else []
        bridges = [f"bridge-{host}" for host in args.bridge]
        return list(_written(folder, [args.lang, *queues, *package, *bridges], copied_files, words))
    except BaseException:
        if has_existed:
            for child in folder.iterdir():  # the folder was empty before
                shutil.rmtree(child) if child.is_dir() else child.unlink()
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _written(
    folder: Path, templates_of: Sequence[str], copied_files: Mapping[str, str], words: Mapping[str, str]
) -> Iterator[Path]:
    """Write every file of the project to `folder`, and yield its path after it is written.

    The files are the templates in the folders `templates_of` with ``{{key}}`` replaced as in `words`, and copies of the
    C headers in `copied_files`.
    """
    for templates in (TEMPLATES / name for name in dict.fromkeys(templates_of)):
        for template in sorted(templates.rglob("*.in")):
            path = folder / _filled(str(template.relative_to(templates)).removesuffix(".in"), words)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, _filled(template.read_text(encoding="utf-8"), words))
            yield path
    for name, place in copied_files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, (include.path() / "interposer" / name).read_bytes())
        yield path


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: words[placeholder[1]], text)
