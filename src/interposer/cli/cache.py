"""``interposer cache``: list the files cached between processes, explain which are stale and why, or delete them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Final

from interposer.cli.arguments.cache import configure
from interposer.cli.tables import Table, counted, say, show, write_json
from interposer.core.cache import (
    CachedFile,
    cache_folder,
    cached_files,
    forget_cached,
    mapped_cached,
    own_names,
    read_cached,
)
from interposer.core.config import CACHE_DIR
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular
from interposer.core.records import dataclass
from interposer.plugins.capi.caching.part_cache import FOLDER as PARTS
from interposer.plugins.capi.caching.part_cache import NAMES as NAMES_OF_PARTS
from interposer.plugins.capi.caching.part_cache import TRIAL, Mark, read_mark, read_part
from interposer.session import default_runtime
from interposer.session.model_file import FOLDER as DIGESTS
from interposer.session.model_file import NAMES as NAMES_OF_DIGESTS
from interposer.session.network_cache import FOLDER, NAMES, Keeper
from interposer.session.network_entry import read_entry
from interposer.session.placement import Plan
from interposer.session.placement.origin import made_with

__all__ = ["configure", "execute"]

_PLAN: Final = own_names(r"plan-[0-9a-f]{32}\.json")
_PROBED: Final = own_names(r"[0-9a-f]{64}-[^/]+\.json")
_OF_BACKENDS: Final = re.compile(r"[^/]+-[0-9a-f]{8}/.+")
"""Files that backends write, under arbitrary names, into the folders assigned to them."""


@dataclass(frozen=True)
class _CachedRow:
    """One row of the listing: a file in the cache folder, and why it cannot be used; an empty `reason` means it can.

    `kind` says what the file holds (such as a network or a plan), `what` is its subject (such as the path of
    the model), `written` is the time of writing as text, and `name` is the path in the cache folder. `sha256` is the
    hash of the network's file, or of the compiled subgraph. `parts` lists the compiled subgraphs of a network.
    `setting` describes the target of a compiled subgraph, in the words of its backend.
    """

    kind: str
    what: str
    bytes: int
    written: str
    name: str
    reason: str = ""
    sha256: str = ""
    parts: tuple[str, ...] = ()
    setting: str = ""


def execute(args: argparse.Namespace) -> None:
    """List, explain or delete the cached files."""
    if args.model is not None and args.action != "why":
        raise InvalidArgumentError(f"'cache {args.action}' takes no file; only 'cache why' does")
    if args.stale and args.action != "clear":
        raise InvalidArgumentError(f"'cache {args.action}' takes no --stale; only 'cache clear' does")
    if args.dir and not os.path.isdir(os.path.expanduser(args.dir)):
        raise InvalidArgumentError(f"--dir: there is no folder {args.dir!r}")
    digest = None if args.model is None else _digest_of(args.model)
    files = list(_rows(args.dir))
    if args.action == "clear":
        _clear([file for file in files if file.reason or not args.stale], args.dir)
        return
    if args.action == "why":
        files = [file for file in files if file.reason] if digest is None else _files_of_model(digest, files)
    if args.json:
        write_json([asdict(file) for file in files])
    elif args.action == "why":
        _explain(args.model, files, args.dir)
    else:
        _list(files, args.dir)


def _list(files: list[_CachedRow], folder: str) -> None:
    if files:
        rows = [(file.kind, file.what, f"{file.bytes:,}", file.written, file.reason or "of use") for file in files]
        show(Table(("kind", "of", "bytes", "written", "state"), rows))
    location = cache_folder(folder) or "no folder: there is to be none"
    say(f"{counted(len(files), 'file')}, {sum(file.bytes for file in files):,} bytes in {location}")


def _reason(model: str, folder: str) -> str:
    """Return why the network in the file `model` is not in the cache folder `folder` (empty for the default folder).

    The reason is not stored, so this optimizes the network and divides it among the backends again to find it.
    """
    location = cache_folder(folder)
    if location is None:
        return f"there is no cache folder, as {CACHE_DIR} is empty"
    with _without_cache():
        reason = Keeper.reason(model, default_runtime())
    return (
        reason
        or f"it could be, but was not loaded yet with this content (by interposer run, for example) into {location}"
    )


@contextmanager
def _without_cache() -> Iterator[None]:
    previous_folder = os.environ.get(CACHE_DIR)
    os.environ[CACHE_DIR] = ""
    try:
        yield
    finally:
        os.environ.pop(CACHE_DIR)
        if previous_folder is not None:
            os.environ[CACHE_DIR] = previous_folder


def _explain(model: str | None, files: list[_CachedRow], folder: str) -> None:
    if model is None and not files:
        say("nothing is stale")
    elif model is not None and not files:
        say(f"{model} is not cached: {_reason(model, folder)}")
    similar_files: dict[tuple[str, str], list[_CachedRow]] = {}
    for file in files:
        similar_files.setdefault((file.kind, file.reason), []).append(file)
    for (kind, reason), rows in similar_files.items():
        more_text = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        say(f"{rows[0].what}{more_text} ({kind}): {reason or 'it is of use'}")


def _clear(files: list[_CachedRow], folder: str) -> None:
    deleted_files = [file for file in files if forget_cached(file.name, folder)]
    say(f"{len(deleted_files)} files with {sum(file.bytes for file in deleted_files):,} bytes are deleted")


def _digest_of(model: str) -> str:
    try:
        check_regular(model)
        with open(model, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidArgumentError(f"{model or 'the file'} cannot be read: {error.strerror}") from error


def _files_of_model(digest: str, files: list[_CachedRow]) -> list[_CachedRow]:
    """Return the cached networks of the model file with this SHA-256, and their compiled subgraphs."""
    networks = [row for row in files if row.sha256 == digest]
    parts = {part for network in networks for part in network.parts}
    return networks + [row for row in files if row.sha256 in parts]


def _rows(cache_dir: str) -> Iterator[_CachedRow]:
    """Yield a record of each file that this package has written to the cache folder `cache_dir`, and ignore all others.

    Networks, compiled subgraphs and digests of model files can be in any cache folder. Plans, trials of shared objects
    and files of backends are only listed for the default folder.
    """
    is_default = cache_folder(cache_dir) == cache_folder()
    for file in cached_files("", cache_dir):
        top_folder, _, file_name = file.name.partition("/")
        written_at = datetime.fromtimestamp(file.time).isoformat(" ", "seconds")
        if top_folder == FOLDER and NAMES.fullmatch(file_name):
            yield _network(file, written_at, cache_dir)
        elif top_folder == PARTS and NAMES_OF_PARTS.fullmatch(file_name):
            yield _part(file, written_at, cache_dir)
        elif top_folder == DIGESTS and NAMES_OF_DIGESTS.fullmatch(file_name):
            yield _CachedRow("digest of a model file", file_name, file.size, written_at, file.name)
        elif not is_default:
            continue
        elif top_folder == "probed" and _PROBED.fullmatch(file_name):
            yield _CachedRow("trial of a shared object", _probed(file, cache_dir), file.size, written_at, file.name)
        elif top_folder == "backends" and _OF_BACKENDS.fullmatch(file_name):
            yield _CachedRow("file of a backend", file_name, file.size, written_at, file.name)
        elif _PLAN.fullmatch(file.name):
            yield _plan(file, written_at, cache_dir)


def _network(file: CachedFile, written_at: str, cache_dir: str) -> _CachedRow:
    try:
        entry = read_entry(mapped_cached(file.name, cache_dir) or b"")
        reason = entry.fault(default_runtime().registry) or ""
        subject = f"{entry.origin['source'] or entry.network['name']} on {', '.join(entry.origin['backends'])}"
        parts = tuple(part.digest for part in entry.parts)
        return _CachedRow(
            "divided network", subject, file.size, written_at, file.name, reason, entry.origin["sha256"], parts
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _CachedRow("divided network", file.name, file.size, written_at, file.name, f"it is damaged: {error}")


def _part(file: CachedFile, written_at: str, cache_dir: str) -> _CachedRow:
    file_kind, name = "compiled part", file.name.removesuffix(TRIAL)
    if name != file.name:
        mark = read_mark(name, cache_dir)
        reason = "" if mark is Mark.NONE else mark.value
        return _CachedRow("trial of a compiled part", name, file.size, written_at, file.name, reason)
    try:
        part = read_part(mapped_cached(file.name, cache_dir) or b"")
        subject = f"{part.origin['source'] or part.origin['part'][:16]} on {part.origin['backend']}"
        reason = part.fault(default_runtime().registry) or ""
        compilation = part.origin["part"], (), part.origin["fingerprint"]
        return _CachedRow(file_kind, subject, file.size, written_at, file.name, reason, *compilation)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _CachedRow(file_kind, file.name, file.size, written_at, file.name, f"it is damaged: {error}")


def _plan(file: CachedFile, written_at: str, cache_dir: str) -> _CachedRow:
    kind = "measured placement"
    try:
        plan = Plan.from_json((read_cached(file.name, cache_dir) or b"").decode())
    except (InvalidArgumentError, UnicodeDecodeError) as error:
        return _CachedRow(kind, file.name, file.size, written_at, file.name, f"it is damaged: {error}")
    subject = f"{plan.network} on {', '.join(sorted(plan.backends))}"
    return _CachedRow(kind, subject, file.size, written_at, file.name, _outdated(plan))


def _outdated(plan: Plan) -> str:
    """Return why a plan no longer matches this machine and its backends; empty if it is still valid.

    A plan that was measured with another number of threads stays valid.
    """
    current_facts = made_with(default_runtime(), plan.backends)
    changed_names = [
        name for name in current_facts if name != "threads" and current_facts[name] != plan.made_with.get(name)
    ]
    return f"{' and '.join(changed_names)} changed since it was measured" if changed_names else ""


def _probed(file: CachedFile, cache_dir: str) -> str:
    try:
        return str(json.loads(read_cached(file.name, cache_dir) or b"")["id"])
    except (ValueError, KeyError, TypeError):
        return file.name
