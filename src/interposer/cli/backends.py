"""``interposer backends``: every backend that is known, available or not."""

from __future__ import annotations

import argparse
from typing import Any

from interposer.backend.registry import BackendRecord
from interposer.cli.tables import Table, show, write_json
from interposer.session import default_runtime

__all__ = ["configure", "execute"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print the records as JSON")


def execute(args: argparse.Namespace) -> None:
    """Print a record of every backend."""
    records = default_runtime().registry.records()
    if args.json:
        write_json([record.to_dict() for record in records])
    else:
        show(Table(("backend", "available", "version", "source", "capabilities, or why not"), [*map(_row, records)]))


def _row(record: BackendRecord) -> tuple[str, ...]:
    can = ", ".join(_capability(name, value) for name, value in record.capabilities if value is not False)
    available = "yes" if record.available else "no"
    return record.id, available, record.version, record.source, can if record.available else record.reason


def _capability(name: str, value: Any) -> str:
    return name if value is True else f"{name}={value}"
