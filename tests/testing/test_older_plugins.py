"""The kit says which operators are newer than a plug-in, and neither fails because of them nor hides them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interposer.cli.main import main
from interposer.testing import Status, check_backend
from tests.native import SOURCES, Natives

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux"),
    pytest.mark.usefixtures("warm_python"),
]

CASES = "support/Addition-float32,support/BlockDequantize-*,support/DynamicQuantize-*"
SENTENCE = [
    "it was built for revision 0 of the vocabulary, so layers of newer operators were not shown to it:",
    "BlockDequantize, DynamicQuantize",
]


@pytest.fixture
def adder(natives: Natives, tmp_path: Path):
    """Return a function that compiles a plug-in for Additions, with the revision of the vocabulary that it knows."""

    def adder(revision: int) -> str:
        exported = f"IPR_EXPORT uint32_t GetVocabularyRevision(void) {{ return {revision}; }}\n"
        text, first = (SOURCES / "adder.c").read_text(), "IPR_EXPORT void GetVersion"
        assert text.count(first) == 1
        return str(natives.install(tmp_path, "Local_Adder_backend.so", text.replace(first, exported + first)))

    return adder


def test_a_report_names_the_operators_that_are_newer_than_the_plugin(adder) -> None:
    report = check_backend(adder(0), only=CASES)
    assert report.ok
    assert report.newer_operators() == ["BlockDequantize", "DynamicQuantize"]
    assert report.newer_line().splitlines() == SENTENCE
    assert "\n".join(["", *SENTENCE, ""]) in str(report)
    newer = [result for result in report.results if result.operator != "Addition"]
    assert {(result.status, result.text) for result in newer} == {
        (Status.REFUSED, "layer type newer than revision 0 of the vocabulary")
    }


def test_the_command_names_them_too(adder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-backend", adder(0), "--only", CASES]) == 0
    assert "\n".join(["", *SENTENCE, ""]) in capsys.readouterr().out


def test_a_plugin_that_knows_the_revision_is_asked_about_the_operators(adder) -> None:
    report = check_backend(adder(1), only=CASES)
    assert report.ok
    assert report.newer_line() == ""
    assert not any("newer" in result.text for result in report.results)
