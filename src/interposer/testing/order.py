"""Rules about the order of calls to a backend, its memory and its workloads, checked on a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from interposer.backend import ArrayHandle
from interposer.testing.recording import Event, Recording

__all__ = ["context_problems", "order_problems"]

Rule = Callable[[Recording], Iterator[str]]


def order_problems(recording: Recording) -> Iterator[str]:
    """Yield a text for each broken rule on the order of calls while one network was loaded, run and unloaded."""
    for rule in _RULES:
        yield from rule(recording)


def _acquired_once(recording: Recording) -> Iterator[str]:
    """Yield an error unless memory is acquired once, in the first run, and released once, on unloading."""
    run_positions, load_positions, unload_positions = (
        recording.positions(call) for call in ("run", "loaded", "unload")
    )
    for manager in _managers(recording):
        acquire_positions, release_positions = (recording.positions(call, manager) for call in ("acquire", "release"))
        if not (acquire_positions or release_positions or manager in recording.manager_of.values()):
            continue  # from a registry that was only queried for the properties of its factories
        if len(acquire_positions) != min(1, len(run_positions)):
            counts = f"{len(acquire_positions)} times in {len(run_positions)} runs"
            yield f"the memory was acquired {counts}; expected once, before the first"
        if load_positions and any(position < load_positions[0] for position in acquire_positions):
            yield "the memory was acquired while the network was loaded; expected in its first run"
        too_early = [
            position for position in release_positions if not unload_positions or position < unload_positions[0]
        ]
        if too_early:
            yield f"the memory was released {len(too_early)} times before the network was unloaded; expected only then"
        elif unload_positions and acquire_positions and len(release_positions) != 1:
            yield f"the memory was released {len(release_positions)} times when the network was unloaded; expected once"


def _managers(recording: Recording) -> list[int]:
    return [number for number, title in enumerate(recording.titles) if title == "the memory manager"]


def _planned_once(recording: Recording) -> Iterator[str]:
    """Yield an error unless each handle is managed and then allocated, once each, before any memory is acquired.

    A handle of a network input or output that can import the caller's memory is not managed, and is only allocated in a
    run.
    """
    first_run = min(recording.positions("run"), default=len(recording.events))
    for handle in recording.objects("manage") + recording.objects("allocate"):
        if handle in recording.constants:
            continue
        manage_moments, allocate_moments = (
            recording.positions("manage", handle),
            recording.positions("allocate", handle),
        )
        if not manage_moments and min(allocate_moments) > first_run:
            continue
        if len(manage_moments) != 1 or len(allocate_moments) != 1 or manage_moments[0] > allocate_moments[0]:
            title = recording.titles[handle]
            counts = f"managed {len(manage_moments)} and allocated {len(allocate_moments)} times"
            yield f"{title} was {counts}; expected once each in turn"
            return


def _mapped_while_there(recording: Recording) -> Iterator[str]:
    """Yield an error if a tensor is mapped while it has no memory."""
    for handle in recording.objects("map"):
        manager = recording.manager_of.get(handle, -1)
        acquire_moments, release_moments = (recording.positions(call, manager) for call in ("acquire", "release"))
        for position in recording.positions("map", handle):
            if manager >= 0 and not any(moment < position for moment in acquire_moments):
                yield f"{recording.titles[handle]} was mapped before its memory was acquired"
                return
            if manager >= 0 and any(moment < position for moment in release_moments):
                yield f"{recording.titles[handle]} was mapped after its memory was released"
                return


def _unmapped(recording: Recording) -> Iterator[str]:
    """Yield an error unless every map is followed by an unmap before the run ends."""
    open_maps: dict[int, int] = {}
    for event in recording.events:
        if event.action in ("map", "unmap"):
            open_maps[event.number] = open_maps.get(event.number, 0) + (1 if event.action == "map" else -1)
        if event.action in ("ran", "unload"):  # not when a layer ends, as another one may run at the same time
            for handle, count in open_maps.items():
                if count:
                    kind = "mapped but not unmapped" if count > 0 else "unmapped more often than mapped"
                    yield f"{recording.titles[handle]} was {kind}; every map needs one unmap"
                    return


def _destroyed_once(recording: Recording) -> Iterator[str]:
    """Yield an error unless every handle is used, destroyed exactly once on unloading, and not used afterwards."""
    if not recording.positions("unloaded"):
        return
    used_numbers = {event.number for event in recording.events if event.action != "destroy"}
    used_numbers |= {handle_number for event in recording.events for handle_number in (*event.inputs, *event.outputs)}
    for number, handle in recording.handles.items():
        title, destroy_moments = recording.titles[number], recording.positions("destroy", number)
        if type(handle) is ArrayHandle:
            continue  # the handle only wraps an array, so the runtime does not destroy it
        if not destroy_moments:
            yield f"{title} was created but never destroyed; who creates a handle beside the runtime must destroy it"
        elif len(destroy_moments) > 1:
            count = len(destroy_moments)
            yield f"{title} was destroyed {count} times; only the runtime may destroy it, and does so once"
        later_uses = (
            [event for event in recording.events[destroy_moments[0] + 1 :] if _uses(event, number)]
            if destroy_moments
            else []
        )
        if later_uses:
            yield f"{title} was used after it was destroyed: {later_uses[0].action}"
        if number not in used_numbers and number not in recording.constants:
            yield f"{title} was created but never used"


def _uses(event: Event, number: int) -> bool:
    return event.action != "destroy" and (event.number == number or number in (*event.inputs, *event.outputs))


def _configured_once(recording: Recording) -> Iterator[str]:
    """Yield an error unless a workload is configured once, before it runs, and runs only during a network run."""
    for workload in recording.objects("execute"):
        configure_moments = recording.positions("post_allocation_configure", workload)
        execute_moments = recording.positions("execute", workload)
        title = recording.titles[workload]
        if len(configure_moments) > 1 or (configure_moments and configure_moments[0] > execute_moments[0]):
            yield f"{title} was configured {len(configure_moments)} times; expected once, before it runs"
        if not _within_runs(recording, execute_moments):
            yield f"{title} was executed while the network did not run"


def _within_runs(recording: Recording, positions: list[int]) -> bool:
    spans = list(zip(recording.positions("run"), recording.positions("ran"), strict=False))
    return all(any(start < position < stop for start, stop in spans) for position in positions)


def _written_before_read(recording: Recording) -> Iterator[str]:
    """Yield an error if a run reads a result before the workload that produces it has run."""
    written_handles: set[int] = set()
    handles = {handle for event in recording.events if event.action == "execute" for handle in event.outputs}
    for event in recording.events:
        if event.action == "run":
            written_handles.clear()
        elif event.action == "executed":
            written_handles |= set(event.outputs)
        reads = (event.number,) if event.action == "copy_out" else event.inputs if event.action == "execute" else ()
        for handle in reads:
            if (
                handle >= 0 and handle in handles and handle not in written_handles
            ):  # handles of a single run have no number
                yield f"{recording.titles[handle]} was read before the workload that gives it had run"
                return


_RULES: Final[tuple[Rule, ...]] = (
    _acquired_once,
    _planned_once,
    _mapped_while_there,
    _unmapped,
    _configured_once,
    _written_before_read,
    _destroyed_once,
)

_NOTICES: Final = ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network")


def context_problems(recording: Recording) -> Iterator[str]:
    """Yield an error unless each context is notified before and after loading and unloading, once, in order."""
    notices_of_network: dict[int, list[str]] = {}
    for event in recording.events:
        if event.action in _NOTICES:
            notices_of_network.setdefault(event.inputs[0], []).append(event.action)
    for network, notices in notices_of_network.items():
        if tuple(notices) != _NOTICES:
            calls = ", ".join(notices)
            yield f"of network {network} the context was notified of {calls}; expected {', '.join(_NOTICES)}"
