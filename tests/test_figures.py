"""The figures in README.md and on pages are those that are recorded, with their conditions."""

import pytest

pytest.importorskip("onnx", reason="pip install 'interposer-nn[onnx]'")

from tools import figures


def times(network, ours, theirs, kind="float", **more):
    def engine(least):
        return {"min_ms": least, "plain_min_ms": least, "version": "1.2"}

    engines = {"CpuAcc": engine(ours), "A": engine(theirs), "B": {"failed": "it cannot read it"}}
    return {"network": network, "kind": kind, "batch": 1, "threads": 1, "others": 0.25, "engines": engines, **more}


@pytest.fixture
def facts():
    rows = [times(f"net_{kind}", 2.0, 3.0, kind) for kind in figures.TITLES]
    rows += [times("slow", 4.0, 3.0), times("equal", 2.001, 2.0) | {"engines": {
        name: {"min_ms": 2.0, "plain_min_ms": 2.0, "version": "1.2"} for name in ("CpuAcc", "B")
    }}]  # fmt: skip
    recorded = {"date": "2026-11-22", "processor": "a processor"}
    return {"machine": {"processors": 4}, "recorded": recorded, "engines": ["CpuAcc", "A", "B"], "rows": rows}


def test_a_summary_has_a_row_for_each_kind_and_a_caption_with_the_conditions(facts):
    summary = figures.PAGES["README.md"](facts)
    assert "| float32 | 3 | **1.04** | 0.75 (`slow`) |" in summary
    assert " ".join(summary.partition("\n\n")[2].split()) == (
        "*How many times as fast CpuAcc is as the fastest of A 1.2 and B 1.2. One thread, batches of one; a processor, "
        "a virtual machine of 4 processors of which other programs used up to 25%, so the least time of each engine "
        "counts; November 2026. It is at least as fast on 6 of 7 networks.*"
    )


def test_the_page_of_the_benchmarks_lists_the_networks_on_which_the_first_engine_is_slower(facts):
    assert "CpuAcc is slower on 1 network: `slow` (0.75)." in figures.PAGES["docs/benchmarks.md"](facts)


def test_figures_for_other_threads_than_the_caption_says_are_refused(facts):
    facts["rows"][0]["threads"] = 2
    with pytest.raises(SystemExit, match=r"has figures for \[1, 2\] threads, and the caption says one"):
        figures.PAGES["README.md"](facts)
