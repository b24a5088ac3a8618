"""``interposer saved``: show what a saved network contains, and verify it."""

from __future__ import annotations

import argparse

from interposer.cli.arguments.saved import configure
from interposer.cli.network import trusted_keys_of
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.saved import SavedNetwork, SavedVariant, check, describe

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Read the index, verify the file if requested, and print what it contains."""
    read = check if args.check else describe
    network = read(args.network, trusted_keys_of(args))
    if args.json:
        write_json(network.to_dict())
        return
    _print(network)
    if args.check:
        say("every checksum is right")


def _print(network: SavedNetwork) -> None:
    say(
        f"network {network.name!r}: {network.size:,} bytes, format {network.format}, by interposer {network.interposer}"
    )
    for title, infos in (("input", network.inputs), ("output", network.outputs)):
        for name, info in infos.items():
            say(f"  {title} {name}: {info if info is not None else 'not declared'}")
    if network.signatures:
        say(f"  signatures: {', '.join(network.signatures)}")
    sizes = ", ".join(f"{kind} {size:,} bytes" for kind, size in sorted(network.sizes.items()))
    say(f"  {counted(network.sections, 'section')}: {sizes}")
    say(f"  signed with the key {network.key}" if network.key else "  not signed")
    show(without_empty_columns(Table(("variant", "machine", "layers", "compiled parts", "made for"), _rows(network))))


def _rows(network: SavedNetwork) -> list[list[str]]:
    return [_row(variant) for variant in network.variants]


def _row(variant: SavedVariant) -> list[str]:
    shapes = ", ".join(f"{name}={'x'.join(map(str, shape)) or '()'}" for name, shape in variant.shapes.items())
    layers = ", ".join(f"{count} on {backend}" for backend, count in variant.layers.items())
    count_texts = [
        f"{variant.compiled.get(name, 0)} of {count} of {name} ({variant.compiled_bytes.get(name, 0):,} bytes)"
        for name, count in variant.parts.items()
    ]
    fingerprints = [text for name, text in variant.fingerprints.items() if text and name in variant.compiled]
    return [shapes, variant.machine, layers, ", ".join(count_texts), "; ".join(fingerprints)]
