"""Small networks to save, and changed copies of saved files whose checksums are right again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from interposer.core.types import DataType
from interposer.ops import ComparisonOperation, ReduceOperation
from interposer.saved.container import Container, SectionWriter

X = np.float32([[1, -2, 3, -4], [5, 6, -7, 8]])


def mixed() -> ip.Network:
    """A network with a state, texts, a loop, a constant of more than a page, and quantized values."""
    network = ip.Network("mixed")
    x = network.add_input_layer(0, ip.TensorInfo((2, 4)), name="x")
    total = network.add_state("total", ip.TensorInfo((2, 4)), np.ones((2, 4), np.float32))
    added = network.add_addition_layer(total, x, name="added")
    network.set_state("total", added)
    weights = np.linspace(-1, 1, 4 * 512, dtype=np.float32).reshape(4, 512)
    product = network.add_batch_mat_mul_layer(added, network.add_constant_layer(weights, name="w"), name="product")
    info = ip.TensorInfo((2, 512), "int8", ip.Quantization(0.1, 3))
    network.add_output_layer(
        0, network.add_quantize_layer(product, dtype=DataType.INT8, outputs=info, name="codes"), name="codes"
    )
    names = network.add_constant_layer(np.array(["cat", "dög"], dtype=object), name="names")
    network.add_output_layer(1, names, name="labels")
    network.add_output_layer(2, _looped(network, x), name="looped")
    return network


def _looped(network: ip.Network, x: Any) -> Any:
    """Double a value until its largest element is 100."""
    info = ip.TensorInfo((2, 4))
    condition = ip.Network("condition")
    inner = condition.add_input_layer(0, info, name="value")
    largest = condition.add_reduce_layer(inner, operation=ReduceOperation.MAX, axis=(0, 1), name="largest")
    limit = condition.add_constant_layer(np.float32(100), name="limit")
    less = condition.add_comparison_layer(largest, limit, operation=ComparisonOperation.LESS, name="less")
    condition.add_output_layer(0, less)
    body = ip.Network("body")
    inner = body.add_input_layer(0, info, name="value")
    body.add_output_layer(0, body.add_addition_layer(inner, inner, name="twice"))
    return network.add_layer(ip.ops.While(), x, regions=[condition, body], name="loop")


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Write a copy of a saved network after `change`, which gets the index and the JSON sections by number.

    All checksums are right again; sections of data stay as they are.
    """
    source = Container(path)
    index = json.loads(json.dumps({name: item for name, item in source.index.items() if name != "sections"}))
    facts = {
        str(number): source.facts(number, section.kind)
        for number, section in enumerate(source.sections)
        if section.kind != "data"
    }
    change(index, facts)
    with target.open("w+b") as file:
        writer = SectionWriter(file)
        for number, section in enumerate(source.sections):
            if number == 0:
                writer._small_data += bytes(source.data((0, 0, section.size)))
            elif section.kind == "data":
                raw = source.data((number, 0, section.size)).data
                writer._section("data", raw, bytes([number % 256]) * 32, 4096)
            else:
                writer._numbers.clear()
                assert writer.facts(section.kind, facts[str(number)]) == number
        writer.finish(index)
    return target


def mutate(plain: Any, rng: random.Random) -> None:
    """Change one random member of nested JSON data to a value of the same or of another kind."""
    places: list[tuple[Any, Any]] = []
    _collect(plain, places)
    container, key = rng.choice(places)
    container[key] = rng.choice(
        [
            lambda: rng.choice([0, 1, -1, 2, 1 << 31, 1 << 63, 1 << 70, 7]),
            lambda: rng.choice([None, True, False, 1.5, 1e308, "", "x", "CpuRef", "PreCompiled"]),
            lambda: rng.choice([[], {}, [0, 0, 1 << 40], [3, -1, 4], [[]], {"array": []}]),
            lambda: rng.choice(places)[0][rng.choice(places)[1]] if False else rng.choice(places)[1],
            lambda: _value(*rng.choice(places)),
        ]
    )()


def _value(container: Any, key: Any) -> Any:
    return json.loads(json.dumps(container[key]))


def _collect(plain: Any, places: list[tuple[Any, Any]]) -> None:
    items = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, item in items:
        places.append((plain, key))
        _collect(item, places)


__all__ = ["DataType", "X", "mixed", "mutate", "rewritten"]
