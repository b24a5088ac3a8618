"""``interposer cache``: list the files cached between processes, explain which are stale and why, or delete them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from interposer.cli.tables import Table, say, show, write_json
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
class _Cached:
    """One row of the listing: a file in the cache folder, and why it cannot be used; an empty `reason` means it can.

    `kind` says what the file holds (such as a network or a plan), `what` is its subject (such as the path of the
    model), `written` is the time of writing as text, and `name` is the path in the cache folder. `sha256` is the hash
    of the network's file, or of the compiled subgraph. `parts` lists the compiled subgraphs of a network. `setting`
    describes the target of a compiled subgraph, in the words of its backend.
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer cache`."""
    parser.add_argument("action", choices=["list", "why", "clear"], help="what to do")
    parser.add_argument("model", nargs="?", help="why: the file of a network; without it, all stale files")
    parser.add_argument("--dir", default="", metavar="FOLDER", help="a cache folder other than the default one")
    parser.add_argument("--stale", action="store_true", help="clear: delete only stale files")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")


def execute(args: argparse.Namespace) -> None:
    """List, explain or delete the cached files."""
    if args.model is not None and args.action != "why":
        raise InvalidArgumentError(f"'cache {args.action}' takes no file; only 'cache why' does")
    if args.stale and args.action != "clear":
        raise InvalidArgumentError(f"'cache {args.action}' takes no --stale; only 'cache clear' does")
    if args.dir and not os.path.isdir(os.path.expanduser(args.dir)):
        raise InvalidArgumentError(f"--dir: there is no folder {args.dir!r}")
    cached = list(_all_retained(args.dir))
    if args.action == "clear":
        _clear([item for item in cached if item.reason or not args.stale], args.dir)
        return
    if args.action == "why":
        cached = _asked(args.model, cached) if args.model is not None else [item for item in cached if item.reason]
    if args.json:
        write_json([asdict(item) for item in cached])
    elif args.action == "why":
        _explain(args.model, cached, args.dir)
    else:
        _list(cached, args.dir)


def _list(cached: list[_Cached], folder: str) -> None:
    if cached:
        rows = [(item.kind, item.what, f"{item.bytes:,}", item.written, item.reason or "of use") for item in cached]
        show(Table(("kind", "of", "bytes", "written", "state"), rows))
    where = cache_folder(folder) or "no folder: there is to be none"
    say(f"{len(cached)} files, {sum(item.bytes for item in cached):,} bytes in {where}")


def _reason(model: str, folder: str) -> str:
    """Return why the network in the file `model` is not in the cache folder `folder` (empty for the default folder).

    The reason is not stored, so this optimizes the network and divides it among the backends again to find it.
    """
    where = cache_folder(folder)
    if where is None:
        return f"there is no cache folder, as {CACHE_DIR} is empty"
    with _without_cache():
        reason = Keeper.reason(model, default_runtime())
    return (
        reason or f"it could be, but was not loaded yet with this content (by interposer run, for example) into {where}"
    )


@contextmanager
def _without_cache() -> Iterator[None]:
    before = os.environ.get(CACHE_DIR)
    os.environ[CACHE_DIR] = ""
    try:
        yield
    finally:
        os.environ.pop(CACHE_DIR)
        if before is not None:
            os.environ[CACHE_DIR] = before


def _explain(model: str | None, cached: list[_Cached], folder: str) -> None:
    if model is None and not cached:
        say("nothing is stale")
    elif model is not None and not cached:
        say(f"{model} is not cached: {_reason(model, folder)}")
    for item in cached:
        say(f"{item.what} ({item.kind}): {item.reason or 'it is of use'}")


def _clear(cached: list[_Cached], where: str) -> None:
    gone = [item for item in cached if forget_cached(item.name, where)]
    say(f"{len(gone)} files with {sum(item.bytes for item in gone):,} bytes are deleted")


def _asked(model: str, cached: list[_Cached]) -> list[_Cached]:
    try:
        check_regular(model)
        with open(model, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidArgumentError(f"{model or 'the file'} cannot be read: {error.strerror}") from error
    networks = [item for item in cached if item.sha256 == digest]
    parts = {part for network in networks for part in network.parts}
    return networks + [item for item in cached if item.sha256 in parts]


def _all_retained(where: str) -> Iterator[_Cached]:
    """Yield a record of each file that this package has written to the cache folder `where`, and ignore all others.

    Networks, compiled subgraphs and digests of model files can be in any cache folder. Plans, trials of shared objects
    and files of backends are only listed for the default folder.
    """
    own = cache_folder(where) == cache_folder()
    for file in cached_files("", where):
        folder, _, rest = file.name.partition("/")
        written = datetime.fromtimestamp(file.time).isoformat(" ", "seconds")
        if folder == FOLDER and NAMES.fullmatch(rest):
            yield _network(file, written, where)
        elif folder == PARTS and NAMES_OF_PARTS.fullmatch(rest):
            yield _part(file, written, where)
        elif folder == DIGESTS and NAMES_OF_DIGESTS.fullmatch(rest):
            yield _Cached("digest of a model file", rest, file.size, written, file.name)
        elif not own:
            continue
        elif folder == "probed" and _PROBED.fullmatch(rest):
            yield _Cached("trial of a shared object", _probed(file, where), file.size, written, file.name)
        elif folder == "backends" and _OF_BACKENDS.fullmatch(rest):
            yield _Cached("file of a backend", rest, file.size, written, file.name)
        elif _PLAN.fullmatch(file.name):
            yield _plan(file, written, where)


def _network(file: CachedFile, written: str, where: str) -> _Cached:
    try:
        entry = read_entry(mapped_cached(file.name, where) or b"")
        reason = entry.fault(default_runtime().registry) or ""
        what = f"{entry.origin['source'] or entry.network['name']} on {', '.join(entry.origin['backends'])}"
        parts = tuple(part.digest for part in entry.parts)
        return _Cached("divided network", what, file.size, written, file.name, reason, entry.origin["sha256"], parts)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _Cached("divided network", file.name, file.size, written, file.name, f"it is damaged: {error}")


def _part(file: CachedFile, written: str, where: str) -> _Cached:
    kind, name = "compiled part", file.name.removesuffix(TRIAL)
    if name != file.name:
        mark = read_mark(name, where)
        reason = "" if mark is Mark.NONE else mark.value
        return _Cached("trial of a compiled part", name, file.size, written, file.name, reason)
    try:
        part = read_part(mapped_cached(file.name, where) or b"")
        what = f"{part.origin['source'] or part.origin['part'][:16]} on {part.origin['backend']}"
        reason = part.fault(default_runtime().registry) or ""
        created = part.origin["part"], (), part.origin["fingerprint"]
        return _Cached(kind, what, file.size, written, file.name, reason, *created)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _Cached(kind, file.name, file.size, written, file.name, f"it is damaged: {error}")


def _plan(file: CachedFile, written: str, where: str) -> _Cached:
    kind = "measured placement"
    try:
        plan = Plan.from_json((read_cached(file.name, where) or b"").decode())
    except (InvalidArgumentError, UnicodeDecodeError) as error:
        return _Cached(kind, file.name, file.size, written, file.name, f"it is damaged: {error}")
    what = f"{plan.network} on {', '.join(sorted(plan.backends))}"
    return _Cached(kind, what, file.size, written, file.name, _outdated(plan))


def _outdated(plan: Plan) -> str:
    """Return why a plan no longer matches this machine and its backends; empty if it is still valid.

    A plan that was measured with another number of threads stays valid.
    """
    here = made_with(default_runtime(), plan.backends)
    changed = [name for name, item in here.items() if name != "threads" and item != plan.made_with.get(name)]
    return f"{' and '.join(changed)} changed since it was measured" if changed else ""


def _probed(file: CachedFile, where: str) -> str:
    try:
        return str(json.loads(read_cached(file.name, where) or b"")["id"])
    except (ValueError, KeyError, TypeError):
        return file.name
