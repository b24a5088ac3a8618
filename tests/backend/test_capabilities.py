"""What a backend says of itself."""

from __future__ import annotations

import pytest

from interposer.backend import Capabilities, Capability
from interposer.core.errors import InvalidArgumentError


def test_a_capability_has_exactly_the_value_and_the_type_it_was_given() -> None:
    capabilities = Capabilities(HasFp16=True, NumberOfThreads=1)
    assert capabilities.has("HasFp16")
    assert capabilities.has("NumberOfThreads", 1)
    assert not capabilities.has("NumberOfThreads")
    assert not capabilities.has("HasFp16", 1)
    assert not capabilities.has("Other")
    assert capabilities.get("Other") is None


def test_capabilities_can_come_with_a_line_about_them() -> None:
    capabilities = Capabilities(Capability("TuningLevel", 2, "0 to 3; higher is slower to load"), HasFp16=False)
    assert capabilities.describe("TuningLevel").doc == "0 to 3; higher is slower to load"
    assert [capability.name for capability in capabilities] == ["TuningLevel", "HasFp16"]
    assert capabilities.to_dict() == {"TuningLevel": 2, "HasFp16": False}
    assert len(capabilities) == 2


def test_a_capability_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Capabilities(HasFp16=True).describe("HasFp61")
    assert str(caught.value) == "unknown capability 'HasFp61'; did you mean 'HasFp16'?"


def test_a_capability_cannot_be_given_twice() -> None:
    with pytest.raises(InvalidArgumentError, match="a capability is given twice"):
        Capabilities(Capability("HasFp16", True), HasFp16=False)
