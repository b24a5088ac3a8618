"""What plug-ins are shown in revision 0 of the vocabulary stays as it is; new names come with a newer revision."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path

from interposer._version import VOCABULARY_REVISION
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi import vocabulary
from interposer.plugins.capi.abi.structs import API_VERSION

FROZEN = json.loads((Path(__file__).parents[3] / "plugins/native/frozen/vocabulary.json").read_text(encoding="utf-8"))


def revisions() -> Iterator[tuple[str, int]]:
    """Yield every name with the revision that it came with."""
    yield from vocabulary.DTYPES.items()
    for kind, choices in vocabulary.CHOICES.items():
        yield from ((f"{kind}.{name}", since) for name, since in choices.items())
    for layer, (since, operands, attributes) in vocabulary.LAYERS.items():
        yield layer, since
        yield from ((f"{layer}.{name}", since) for name, since in operands.items())
        yield from ((f"{layer}.{name}", since) for name, (_, since) in attributes.items())


def test_the_types_and_choices_of_revision_0_are_still_there():
    assert vocabulary.DTYPES.items() >= FROZEN["DTYPES"].items()
    for kind, choices in FROZEN["CHOICES"].items():
        assert vocabulary.CHOICES[kind].items() >= choices.items(), kind


def test_the_layers_of_revision_0_have_the_operands_and_attributes_that_they_had():
    for layer, (since, operands, attributes) in FROZEN["LAYERS"].items():
        now = vocabulary.LAYERS[layer]
        assert (now[0], list(now[1].items())[: len(operands)]) == (since, list(operands.items())), layer
        assert now[2].items() >= {name: tuple(item) for name, item in attributes.items()}.items(), layer


def test_no_name_is_newer_than_the_next_revision():
    assert [name for name, since in revisions() if since > VOCABULARY_REVISION + 1] == []


def test_a_name_that_revision_0_did_not_have_says_so():
    known = {name for name, since in revisions() if since == 0}
    frozen = {*FROZEN["DTYPES"], *FROZEN["LAYERS"]}
    frozen |= {f"{kind}.{name}" for kind, choices in FROZEN["CHOICES"].items() for name in choices}
    for layer, (_, operands, attributes) in FROZEN["LAYERS"].items():
        frozen |= {f"{layer}.{name}" for name in (*operands, *attributes)}
    assert known == frozen


def test_elements_of_arrays_had_these_sizes_in_1_0():
    assert API_VERSION != (1, 0) or {name: ctypes.sizeof(getattr(abi, name)) for name in abi.ELEMENT_SIZES} == dict(
        abi.ELEMENT_SIZES
    )
