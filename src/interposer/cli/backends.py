"""``interposer backends``: list every known backend, available or not, and every plug-in file that failed to load."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from interposer.cli.arguments.backends import configure
from interposer.cli.running import runtime_of_folders
from interposer.cli.tables import Table, say, show, wrapped, write_json
from interposer.plugins.capi.loading.records import DynamicBackendRecord
from interposer.plugins.registry import BackendRecord
from interposer.runtime import Runtime

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Print a record of every backend."""
    with runtime_of_folders(args) as runtime:
        _print_all(args, runtime)


def _print_all(args: argparse.Namespace, runtime: Runtime) -> None:
    if args.json:
        write_json([_to_dict(record, plugin_record, runtime) for record, plugin_record in _records(runtime)])
    else:
        _print([_row(record, _remark(record, runtime)) for record, _ in _records(runtime)])


def _print(rows: list[tuple[str, ...]]) -> None:
    """Print a table of backends; `rows` have the name, availability, version, source, and capabilities or a reason.

    On a terminal, source and capabilities follow below the table, wrapped at word boundaries, as they are long.
    """
    titles = ("backend", "available", "version", "source", "capabilities, or why not")
    if not sys.stdout.isatty():
        show(Table(titles, rows))
        return
    width = shutil.get_terminal_size().columns
    show(Table(titles[:3], [row[:3] for row in rows]))
    for name, *_, source, details in rows:
        print()
        for line in (name, *wrapped(source, width, "  "), *wrapped(details, width, "  ")):
            say(line)


def _records(runtime: Runtime) -> Iterator[tuple[BackendRecord, DynamicBackendRecord | None]]:
    """Yield a record for every known backend, with the shared object that it was loaded from, or None.

    Shared objects that give no usable backend follow, each with an unavailable record that says why.
    """
    plugin_records = {plugin_record.source: plugin_record for plugin_record in runtime.dynamic_backends()}
    for record in runtime.registry.records():
        yield record, plugin_records.pop(record.source, None)
    for source, plugin_record in plugin_records.items():
        yield BackendRecord(plugin_record.id, False, source, plugin_record.reason), plugin_record


def _to_dict(record: BackendRecord, plugin_record: DynamicBackendRecord | None, runtime: Runtime) -> dict[str, Any]:
    if plugin_record is None:
        remark = _remark(record, runtime)
        return record.to_dict() | ({"remark": remark} if remark else {})
    plugin = plugin_record.to_dict()
    plugin_keys = ("file", "path", "library", "state", "step", "sha256")
    declared_options = getattr(runtime.registry.get(record.id), "declared_options", ()) if record.available else ()
    options = [
        {"name": option.name, "default": option.default, "doc": option.doc, "for": option.scopes}
        for option in declared_options
    ]
    facts = {key: plugin[key] for key in plugin_keys} | {"interface": plugin_record.version, "options": options}
    return record.to_dict() | facts


def _remark(record: BackendRecord, runtime: Runtime) -> str:
    """Return the remark of an engine, for example about its version; empty if the backend has none."""
    remark: str = getattr(runtime.registry.get(record.id), "remark", "") if record.available else ""
    return remark


def _row(record: BackendRecord, remark: str) -> tuple[str, ...]:
    capabilities = ", ".join(_capability(name, value) for name, value in record.capabilities if value is not False)
    availability = "yes" if record.available else "no"
    devices = f"devices: {', '.join(map(str, record.devices))}" if record.devices else ""
    details = "; ".join(filter(None, (remark, devices, capabilities))) if record.available else record.reason
    return record.id or "-", availability, record.version, record.source, details


def _capability(name: str, value: Any) -> str:
    return name if value is True else f"{name}={value}"
