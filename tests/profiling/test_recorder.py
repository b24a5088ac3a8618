"""Recorders: what they record, on which thread, and what a full buffer loses."""

from __future__ import annotations

import gc
import threading
from threading import get_ident

import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.profiling import Category, Counter, Interval, Recorder, Site, TracedNetwork
from interposer.profiling.recorder import Chain, Enclosing, active, begin_run, instant, interval, sample

NETWORK = TracedNetwork("net", 0, -1)
SITE = Site(Category.USER, "place")


def names(recorder: Recorder) -> list[str]:
    return [interval.site.name for interval in recorder.recording().intervals]


def test_nothing_is_recorded_outside_of_the_block() -> None:
    recorder = Recorder()
    with interval(Category.USER, "before"):
        pass
    with recorder, interval(Category.USER, "inside"):
        pass
    with interval(Category.USER, "after"):
        pass
    assert names(recorder) == ["inside"]
    assert active == []


def test_a_block_that_raises_is_recorded_too() -> None:
    recorder = Recorder()
    with recorder, pytest.raises(ValueError, match="no"), interval(Category.USER, "fails"):
        raise ValueError("no")
    assert names(recorder) == ["fails"]


def test_events_of_all_kinds_keep_their_values_and_are_ordered_by_time() -> None:
    counter = Counter("loads", "networks")
    with Recorder() as recorder:
        sample(counter, 2)
        with interval(Category.LOAD, "outer", layer="a", backend="B"), interval(Category.LOAD, "inner"):
            instant(Category.BACKEND, "crash", backend="B")
        sample(counter, 3.5)
    recording = recorder.recording()
    outer, inner = recording.intervals
    [moment] = recording.instants
    assert (outer.site.name, outer.site.layer, outer.site.backend, inner.site.name) == ("outer", "a", "B", "inner")
    assert outer.begin <= inner.begin <= moment.at <= inner.end <= outer.end
    assert outer.duration == outer.end - outer.begin
    assert [(sampled.counter, sampled.value) for sampled in recording.samples] == [(counter, 2), (counter, 3.5)]
    assert (moment.site.backend, moment.run, moment.inference) == ("B", -1, -1)
    assert recording.threads == {get_ident(): threading.current_thread().name}
    assert recording.lost == 0


def test_several_recorders_get_the_same_events() -> None:
    with Recorder() as first, Recorder() as second, interval(Category.USER, "x"):
        pass
    assert first.recording().intervals == second.recording().intervals


def test_starting_and_stopping_twice_changes_nothing_and_the_events_are_kept() -> None:
    recorder = Recorder()
    recorder.start()
    recorder.start()
    with interval(Category.USER, "x"):
        pass
    recorder.stop()
    recorder.stop()
    assert not recorder.is_active
    assert names(recorder) == ["x"]
    recorder.clear()
    assert names(recorder) == []


def test_a_full_buffer_drops_its_oldest_events_and_counts_them() -> None:
    with Recorder(capacity=3) as recorder:
        for number in range(5):
            with interval(Category.USER, str(number)):
                pass
    assert names(recorder) == ["2", "3", "4"]
    assert recorder.lost == recorder.recording().lost == 2


def test_a_run_of_more_events_than_the_buffer_holds_is_lost_as_a_whole() -> None:
    with Recorder(capacity=3) as recorder:
        trace = begin_run(NETWORK, iter(range(9)))
        assert trace is not None
        for _ in range(4):
            trace.add(SITE, trace.begin)
        trace.finish()
    assert names(recorder) == []
    assert recorder.lost == 4


def test_each_thread_has_a_buffer_of_its_own() -> None:
    def record() -> None:
        for _ in range(5):
            with interval(Category.USER, threading.current_thread().name):
                pass

    with Recorder(capacity=3) as recorder:
        workers = [threading.Thread(target=record, name=f"worker {number}") for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    recording = recorder.recording()
    assert len(recording.intervals) + recording.lost == 20
    assert {worker.site.name for worker in recording.intervals} <= {worker.name for worker in workers}


def test_events_are_neither_lost_nor_doubled_while_another_thread_reads_them() -> None:
    recorder, over = Recorder(), threading.Event()

    def record() -> None:
        for number in range(2000):
            with interval(Category.USER, str(number)):
                pass
        over.set()

    with recorder:
        worker = threading.Thread(target=record)
        worker.start()
        while not over.is_set():
            seen = names(recorder)
            assert seen == [str(number) for number in range(len(seen))]
        worker.join()
    assert len(names(recorder)) == 2000


def test_a_recorder_of_one_network_ignores_others_and_what_belongs_to_none() -> None:
    same_named = TracedNetwork("net", 0, -2)
    with Recorder(network=NETWORK) as recorder:
        for network in (NETWORK, same_named, None):
            with interval(Category.LOAD, "x", network=network):
                pass
        assert begin_run(same_named, iter(range(9))) is None
    assert [item.site.network for item in recorder.recording().intervals] == [NETWORK]


def test_a_recorder_of_one_thread_ignores_the_others_but_not_runs_begun_for_it() -> None:
    recorder = Recorder(thread=get_ident())
    traces: list[object] = []

    def work(owner: int | None) -> None:
        with interval(Category.USER, "elsewhere"):
            traces.append(begin_run(NETWORK, iter(range(9)), owner))

    with recorder:
        for owner in (None, get_ident()):
            worker = threading.Thread(target=work, args=(owner,))
            worker.start()
            worker.join()
    assert traces[0] is None
    assert traces[1] is not None
    assert names(recorder) == []


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "many"])
def test_a_capacity_that_is_not_a_positive_integer_is_refused(capacity: object) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        Recorder(capacity)  # type: ignore[arg-type]
    assert str(refused.value) == f"the capacity must be a positive number of events, not {capacity!r}"


def test_a_site_lists_what_is_known_about_it() -> None:
    site = Site(Category.LAYER, "add", "Addition", NETWORK, "add", backend="CpuRef", bytes=0, details=(("a", "b"),))
    assert site.to_dict() == {
        "network": "net",
        "network_id": 0,
        "kind": "Addition",
        "layer": "add",
        "backend": "CpuRef",
        "bytes": 0,
        "a": "b",
    }


def chain(layers: int) -> Chain:
    """Return the shape of runs with so many layers."""
    layer_sites = [Site(Category.LAYER, f"layer {number}") for number in range(layers)]
    sites = [Site(category, str(category)) for category in (Category.RUN, Category.EXECUTE, Category.COPY)]
    run, execute, before = sites
    return Chain(run, execute, before, layer_sites, Site(Category.COPY, "after"))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0, 1, 3, 6, 7], ["run 0-7", "copy 0-1", "execute 1-6", "layer 0 1-3", "layer 1 3-6", "after 6-7"]),
        ([0, 1, 3, 6], ["run 0-6", "copy 0-1", "execute 1-6", "layer 0 1-3", "layer 1 3-6"]),
        ([0, 1, 3], ["run 0-3", "copy 0-1", "execute 1-3", "layer 0 1-3"]),
        ([0, 1], ["run 0-1", "copy 0-1"]),
        ([0], ["run 0-0"]),
    ],
    ids=["with outputs that are copied", "without", "failed in a layer", "failed at its inputs", "stopped at once"],
)
def test_the_times_of_a_run_become_the_intervals_that_have_ended(times: list[int], expected: list[str]) -> None:
    fields = chain(2).fields(times, 1)
    rows = zip(fields[::4], fields[1::4], fields[2::4], strict=True)
    assert [f"{site.name} {begin}-{end}" for site, begin, end in rows] == expected


def test_runs_that_are_recorded_as_times_count_for_the_capacity_with_all_their_events() -> None:
    shape = chain(6)
    with Recorder(capacity=25) as recorder:
        for _ in range(4):
            trace = begin_run(NETWORK, iter(range(9)))
            assert trace is not None
            trace.times += range(trace.begin, trace.begin + 8)
            trace.finish_chain(shape)
    assert len(recorder.recording().intervals) == 2 * 10
    assert recorder.lost == 2 * shape.size


def test_a_recorder_forgets_the_sites_of_networks_whose_runs_it_has_dropped() -> None:
    with Recorder(capacity=100) as recorder:
        for _ in range(2000):
            trace = begin_run(NETWORK, iter(range(9)))
            assert trace is not None
            trace.times.append(trace.begin + 1)
            trace.finish_chain(chain(1))
    assert len(recorder.recording().intervals) == 40
    gc.collect()
    assert sum(isinstance(live_object, Chain) for live_object in gc.get_objects()) < 600


LAYER = Site(Category.LAYER, "part", backend="Device")
KERNEL = Site(Category.KERNEL, "kernel", backend="Device", device="unit 0")


def kernel(begin: int, end: int) -> Interval:
    return Interval(KERNEL, begin, end, 0, -1, -1)


def test_work_of_a_device_belongs_to_the_layer_around_it() -> None:
    first, second = (Interval(LAYER, begin, begin + 500_000, 1, run, run) for run, begin in enumerate((0, 520_000)))
    layers = Enclosing([second, first])
    assert layers.layer(kernel(100, 499_000)) is first
    assert layers.layer(kernel(515_000, 600_000)) is second


def test_work_of_a_device_may_be_outside_of_its_layer_by_the_error_of_the_clock() -> None:
    layer = Interval(LAYER, 100_000, 200_000, 1, 0, 0)
    layers = Enclosing([layer])
    assert layers.layer(kernel(90_000, 92_000)) is layer
    assert layers.layer(kernel(210_000, 218_000)) is layer
    assert layers.layer(kernel(250_000, 252_000)) is None
    assert layers.layer(kernel(10_000, 12_000)) is None


def test_work_of_a_device_belongs_to_no_layer_if_two_of_them_overlap() -> None:
    layers = Enclosing([Interval(LAYER, 0, 900_000, 1, 0, 0), Interval(LAYER, 100_000, 200_000, 2, 1, 1)])
    assert layers.layer(kernel(150_000, 160_000)) is None
    found = layers.layer(kernel(500_000, 510_000))
    assert found is not None
    assert found.run == 0
