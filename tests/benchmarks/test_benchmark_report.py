"""What the benchmark of whole networks makes of its figures."""

from xml.etree import ElementTree

import pytest

pytest.importorskip("onnx")

from benchmarks.engines.peak import Peak
from benchmarks.engines.plot import svg
from benchmarks.engines.report import least, markdown, speed_of_peak, text, versus

ENGINES = ["Ours", "Peer", "Other"]
PEAKS = {1: Peak(100e9, 0.0, "measured")}


def timed(*rounds, **more):
    ordered = sorted(rounds)
    loads = {"load_cold_ms": 20.0, "load_warm_ms": 4.0, "memory_bytes": 5_000_000}
    times = {"median_ms": ordered[len(rounds) // 2], "min_ms": ordered[0], "rounds_ms": [*rounds]}
    plain = {f"plain_{name}": value for name, value in times.items() if name != "median_ms"}
    return times | plain | {"plain_ms": times["median_ms"]} | loads | more


def row(network="net", quantized=False, kind="float", **engines):
    return {
        "network": network,
        "kind": kind,
        "batch": 1,
        "threads": 1,
        "operations": 100_000_000,
        "quantized": quantized,
        "others": 0.25,
        "engines": engines,
    }


ROWS = [
    row("quick", Ours=timed(2.0, 4.0, 2.0), Peer=timed(4.0, 8.0, 4.0), Other={"failed": "it cannot read it"}),
    row(
        "slow", Ours=timed(4.0, 4.0, 4.0, note="layers: Ours 3"), Peer=timed(9.0, 9.0, 9.0), Other=timed(2.0, 2.0, 2.0)
    ),
]


def test_a_report_has_times_loading_means_losses_and_remarks():
    expected = """\
peak, 1 thread: 100 GFLOP/s of float32 (measured)

milliseconds of one run: median (least)
x: how many times as fast as the best of the others, by the medians of rounds; least: by the least times
of peak: what part of the machine's peak that is, direct sums of products counted
others: what part of all processors other programs used at the same time

network   kind  threads         Ours         Peer        Other     x  least  of peak  others
quick    float        1  2.00 (2.00)  4.00 (4.00)            -  2.00   2.00      50%     25%
slow     float        1  4.00 (4.00)  9.00 (9.00)  2.00 (2.00)  0.50   0.50      25%     25%

milliseconds of one plain call, which takes arrays and returns new ones: median (least)
x: how many times as fast as the best of the others, by the medians of rounds

network  threads         Ours         Peer        Other     x
quick          1  2.00 (2.00)  4.00 (4.00)            -  2.00
slow           1  4.00 (4.00)  9.00 (9.00)  2.00 (2.00)  0.50

milliseconds from the file to the first answer, without a cache / with one; MB of memory that came with it

network  threads            Ours            Peer           Other
quick          1  20.0 / 4.00; 5  20.0 / 4.00; 5               -
slow           1  20.0 / 4.00; 5  20.0 / 4.00; 5  20.0 / 4.00; 5

Ours, 1 thread: 1.00 times (2 networks) as fast as the best of the others
  float32: 1.00 times (2 networks), least 0.50
  as Peer: 2.12 times (2 networks)
  as Other: 0.50 times (1 network)
  slower: slow (0.50 of Other)

quick, Other: it cannot read it
slow, Ours: layers: Ours 3
"""
    assert text(ROWS, ENGINES, PEAKS) == expected


def test_tiny_networks_count_by_plain_calls():
    plain = {"plain_ms": 8.0, "plain_min_ms": 8.0, "plain_rounds_ms": [8.0]}
    small = row("small", kind="tiny", Ours=timed(1.0, **plain), Peer=timed(2.0))

    assert "tiny, by plain calls: 0.25 times (1 network), least 0.25" in text([small], ENGINES[:2], PEAKS)
    assert "slower: small (0.25 of Peer)" in text([small], ENGINES[:2], PEAKS)


def test_the_tables_for_the_documentation_have_means_and_rows_of_each_kind():
    rows = [*ROWS, row("net", kind="tiny", Ours=timed(1.0), Peer=timed(3.0)) | {"batch": 8, "threads": 2}]

    assert (
        markdown(rows, ENGINES)
        == """\
| networks | 1 thread, mean | least | 2 threads, mean | least |
|---|---|---|---|---|
| float32 | 1.00 | 0.50 | - | - |
| tiny, by plain calls | - | - | 3.00 | 3.00 |

| float32 | Ours, 1 thread | best other | times as fast | Ours, 2 threads | best other | times as fast |
|---|---|---|---|---|---|---|
| `quick` | 2.00 | 4.00 Peer | 2.00 | - | - | - |
| `slow` | 4.00 | 2.00 Other | 0.50 | - | - | - |

| tiny, by plain calls | Ours, 1 thread | best other | times as fast | Ours, 2 threads | best other | times as fast |
|---|---|---|---|---|---|---|
| `net` x 8 | - | - | - | 1.00 | 3.00 Peer | 3.00 |
"""
    )


def test_a_ratio_is_taken_round_by_round_so_that_a_slow_moment_hits_both():
    against = versus(row(Ours=timed(1.0, 10.0, 1.0), Peer=timed(2.0, 20.0, 9.0)), "Ours")

    assert (against.peer, against.ratio, against.ratio_of_minima) == ("Peer", 2.0, 2.0)


def test_the_documentation_compares_least_times_so_that_a_ratio_agrees_with_the_times_beside_it():
    busy = row(Ours=timed(48.0, 20.0, 60.0), Peer=timed(30.0, 59.0, 61.0), Other=timed(40.0))
    assert (least(busy, "Ours").ours, least(busy, "Ours").peer, least(busy, "Ours").ratio) == (20.0, "Peer", 1.5)
    assert "| `net` | 20.0 | 30.0 Peer | 1.50 |" in markdown([busy], ENGINES)
    assert least(row(Ours=timed(1.0), Peer={"failed": "absent"}), "Ours") is None


def test_nothing_is_compared_where_one_has_not_run():
    assert versus(row(Ours=timed(1.0), Peer={"failed": "absent"}), "Ours") is None
    assert versus(row(Ours={"failed": "absent"}, Peer=timed(1.0)), "Ours") is None


def test_fast_math_is_compared_only_where_it_is_named():
    both = row(**{"Ours": timed(2.0), "Peer": timed(4.0), "Ours (fast math)": timed(1.0)})

    assert versus(both, "Ours").peer == "Peer"
    assert versus(both, "Ours", "Ours (fast math)").ratio == 0.5
    assert versus(row(**{"Ours": timed(2.0), "Ours (fast math)": timed(1.0)}), "Ours") is None


def test_no_share_of_a_peak_is_told_where_that_is_not_known():
    assert speed_of_peak(row(quantized=True, Ours=timed(1.0)), "Ours", PEAKS) is None


def test_the_plot_has_a_point_for_every_time():
    root = ElementTree.fromstring(svg(ROWS, ENGINES))

    tips = [item.text for item in root.iter("{http://www.w3.org/2000/svg}title")]
    assert tips == ["Ours: 0.50", "Peer: 1.00", "Ours: 2.00", "Peer: 4.50", "Other: 1.00"]


def test_the_plot_of_nothing_is_a_picture():
    assert ElementTree.fromstring(svg([], ENGINES)).tag.endswith("svg")
