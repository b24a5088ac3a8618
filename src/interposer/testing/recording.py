"""A backend that forwards everything to another one and writes down what it and all that it made are asked.

Managers, factories, handles, workloads and contexts stay what they are, as a backend may look at their classes: their
methods are replaced in place by ones that write down and go on. What has no room for that stays unwatched.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from interposer.backend import (
    Backend,
    BackendContext,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Support,
    TensorHandle,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.ir.graph import Layer
from interposer.testing.tolerances import same
from interposer.types import Array, DataType, TensorInfo

__all__ = ["Census", "Event", "Observer", "Recording", "Watched", "rubbish"]


class Observer(Protocol):
    """Is shown everything that a backend makes."""

    def manager(self, made: MemoryManager) -> None:
        """The memory of a network."""

    def factory(self, made: WorkloadFactory, manager: MemoryManager | None) -> None:
        """What makes workloads and handles."""

    def context(self, made: BackendContext) -> None:
        """What is told of loading and unloading."""


class Watched(Backend):
    """Another backend under its own id. Layers whose names are in `held_back` are refused in its name."""

    def __init__(self, inner: Backend, observer: Observer, held_back: Collection[str] = ()) -> None:
        self.inner, self.observer, self.held_back = inner, observer, frozenset(held_back)
        said = ("id", "kernels", "capabilities", "api_version", "version")
        vars(self).update({name: getattr(inner, name) for name in said})

    def layer_support(self, options: Options) -> LayerSupport:
        """The backend's own, but for the layers that are held back."""
        support = self.inner.layer_support(options)
        return _Picky(support, self.held_back) if self.held_back else support

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """The backend's own."""
        return self.inner.optimize_subgraph(view, options)

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """The backend's own."""
        return self.inner.handle_factory_preferences

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """The backend's own."""
        self.inner.register_tensor_handle_factories(registry, options)

    def create_memory_manager(self) -> MemoryManager | None:
        """The backend's own, shown to the observer."""
        made = self.inner.create_memory_manager()
        if isinstance(made, MemoryManager):
            self.observer.manager(made)
        return made

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """The backend's own, shown to the observer."""
        made = self.inner.create_workload_factory(memory_manager, options)
        if isinstance(made, WorkloadFactory):
            self.observer.factory(made, memory_manager)
        return made

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """The backend's own, shown to the observer."""
        made = self.inner.create_backend_context(options)
        if isinstance(made, BackendContext):
            self.observer.context(made)
        return made


class _Picky(LayerSupport):
    def __init__(self, inner: LayerSupport, held_back: frozenset[str]) -> None:
        self.inner, self.held_back = inner, held_back

    def query(self, view: SubgraphView) -> list[Support]:
        pairs = zip(view, self.inner.query(view), strict=True)
        return [Support.no("held back") if layer.name in self.held_back else verdict for layer, verdict in pairs]


def _replace(thing: object, name: str, made: Callable[..., Any]) -> bool:
    """Give an object a method of its own; False where it has no room for that."""
    try:
        setattr(thing, name, made)
    except AttributeError:
        return False
    return True


class Event(NamedTuple):
    """One call: of what, on which thing (by number), inside which other call of the same thread."""

    what: str
    thing: int = -1
    inside: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


class Recording:
    """What a backend was asked, in order, while networks were loaded, run and unloaded.

    `titles` says what a thing is, by its number; `faults` lists what was seen to be wrong at once. Memory is filled
    with rubbish when it is acquired, so that nothing can rely on what it holds at first.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.titles: list[str] = []
        self.faults: list[str] = []
        self.manager_of: dict[int, int] = {}
        self.overwrites: set[tuple[int, int]] = set()
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        self._handles: dict[int, list[TensorHandle]] = {}
        self._threads = threading.local()

    # --- what the kit itself says -------------------------------------------------------------------------------------

    def mark(self, what: str) -> None:
        """Write down that the kit does something: "run" and "ran", "unload" and "unloaded", ..."""
        self.events.append(Event(what))

    def positions(self, what: str, thing: int | None = None) -> list[int]:
        """Where in the order of events something was asked (of one thing)."""
        return [at for at, event in enumerate(self.events) if event.what == what and thing in (None, event.thing)]

    def things(self, what: str) -> list[int]:
        """The numbers of the things that were ever asked this, each once."""
        return list(dict.fromkeys(event.thing for event in self.events if event.what == what))

    # --- what the backend makes ---------------------------------------------------------------------------------------

    def manager(self, made: MemoryManager) -> None:
        """Watch a memory manager."""
        number = self._number(made, "the memory manager")
        if number is None:
            self.faults.append("create_memory_manager gave a manager that it had given before; every network needs one")
            return
        self._watch(made, number, "acquire", after=lambda: self._spoil(number))
        self._watch(made, number, "release")

    def factory(self, made: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Watch a workload factory, and everything that it makes."""
        make_handle, make_workload = made.create_tensor_handle, made.create_workload
        owner = -1 if manager is None else self._numbers.get(id(manager), -1)

        def create_tensor_handle(info: TensorInfo) -> TensorHandle:
            handle = make_handle(info)
            if isinstance(handle, TensorHandle):
                self._watch_handle(handle, info, owner)
            return handle

        def create_workload(layer: Layer, info: WorkloadInfo) -> Workload:
            workload = make_workload(layer, info)
            if isinstance(workload, Workload):
                self._watch_workload(workload, layer)
            return workload

        _replace(made, "create_tensor_handle", create_tensor_handle)
        _replace(made, "create_workload", create_workload)

    def context(self, made: BackendContext) -> None:
        """Watch a context."""
        number = self._number(made, "the context")
        if number is None:
            return
        for name in ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network"):
            self._watch_notice(made, number, name)

    def _number(self, thing: object, title: str) -> int | None:
        """A number for a thing that is new; None for one that is known."""
        if id(thing) in self._numbers:
            return None
        self._numbers[id(thing)] = number = len(self.titles)
        self.titles.append(title)
        self._kept.append(thing)
        return number

    def _watch_handle(self, handle: TensorHandle, info: TensorInfo, owner: int) -> None:
        number = self._number(handle, f"the handle of {info}")
        if number is None:
            self.faults.append(f"create_tensor_handle gave a handle that it had given before, for {info}")
            return
        self.manager_of[number] = owner
        self._handles.setdefault(owner, []).append(handle)
        for name in ("manage", "allocate", "map", "unmap", "copy_in", "copy_out"):
            self._watch(handle, number, name)
        self._watch_sharing(handle, number)

    def _watch_sharing(self, handle: TensorHandle, number: int) -> None:
        original = handle.share

        def share(source: TensorHandle) -> bool:
            agreed = original(source)
            if agreed:
                self.events.append(Event("manage", number, self._where()))
                self.overwrites.add((number, self._numbers.get(id(source), -1)))
            return agreed

        _replace(handle, "share", share)

    def _watch_workload(self, workload: Workload, layer: Layer) -> None:
        number = self._number(workload, f"the workload of layer {layer}")
        if number is None:
            self.faults.append(f"create_workload gave a workload that it had given before, for layer {layer}")
            return
        self._watch(workload, number, "post_allocation_configure")
        execute = workload.execute

        def watched(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            ids = [tuple(self._numbers.get(id(one), -1) for one in handles) for handles in (inputs, outputs)]
            before = [self._content(one) for one in inputs]
            with self._inside("execute", number, ids[0], ids[1]):
                execute(inputs, outputs)
            self.events.append(Event("executed", number, self._where(), *ids))
            for index, (handle, old) in enumerate(zip(inputs, before, strict=True)):
                new = self._content(handle)
                if any((out, ids[0][index]) in self.overwrites for out in ids[1]):
                    continue
                if handle is not None and old is not None and new is not None and not same(new, old):
                    shared = "" if not self._shared(handle, outputs) else "; an output lies in the same memory"
                    self.faults.append(f"the workload of layer {layer} wrote to its input {index}{shared}")

        _replace(workload, "execute", watched)

    def _shared(self, one: TensorHandle, others: Sequence[TensorHandle]) -> bool:
        with self._by_the_kit(), ExitStack() as stack:
            array = stack.enter_context(one.mapped())
            return any(np.may_share_memory(array, stack.enter_context(other.mapped())) for other in others)

    # --- watching -----------------------------------------------------------------------------------------------------

    def _watch(self, thing: object, number: int, name: str, after: Callable[[], None] = lambda: None) -> None:
        original = getattr(thing, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            with self._inside(name, number), self._noting_errors(number, name):
                found = original(*arguments, **named)
            after()
            return found

        _replace(thing, name, watched)

    def _watch_notice(self, thing: object, number: int, name: str) -> None:
        original = getattr(thing, name)

        def watched(network_id: int) -> Any:
            self.events.append(Event(name, number, inputs=(network_id,)))
            with self._noting_errors(number, name):
                agreed = original(network_id)
            if agreed not in (True, None):
                self.faults.append(f"{self.titles[number]} said no in {name}")
            return agreed

        _replace(thing, name, watched)

    @contextmanager
    def _noting_errors(self, number: int, name: str) -> Iterator[None]:
        """Note what is raised; the runtime only logs what happens while a network goes."""
        try:
            yield
        except Exception as error:
            if self._where() != "kit":
                self.faults.append(f"{self.titles[number]} raised {type(error).__name__} in {name}: {error}")
            raise

    @contextmanager
    def _inside(
        self, what: str, number: int, inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = ()
    ) -> Iterator[None]:
        if self._where() == "kit":
            yield
            return
        self.events.append(Event(what, number, self._where(), inputs, outputs))
        stack = self._stack()
        stack.append(what)
        try:
            yield
        finally:
            stack.pop()

    def _stack(self) -> list[str]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        found: list[str] = self._threads.stack
        return found

    def _where(self) -> str:
        stack = self._stack()
        return stack[-1] if stack else ""

    @contextmanager
    def _by_the_kit(self) -> Iterator[None]:
        self._stack().append("kit")
        try:
            yield
        finally:
            self._stack().pop()

    def _content(self, handle: TensorHandle | None) -> Array | None:
        """A copy of what a tensor holds, None where it cannot be looked at; the runtime will say why."""
        if handle is None:
            return None
        try:
            with self._by_the_kit(), handle.mapped() as array:
                return array.copy()
        except Exception:  # whatever a handle raises, it will raise again where it counts
            return None

    def _spoil(self, manager: int) -> None:
        for handle in self._handles.get(manager, ()):
            try:
                with self._by_the_kit(), handle.mapped() as array:
                    array[...] = rubbish(handle.info.dtype)
            except Exception:
                continue

    def spoil_unmanaged(self) -> None:
        """Fill the memory that no manager has with rubbish; to be called when a network is loaded."""
        self._spoil(-1)


def rubbish(dtype: DataType) -> Array:
    """The element with which the kit fills memory, so that nothing can rely on what memory holds at first."""
    if dtype is DataType.STRING:
        return np.array("rubbish", object)
    number = np.nan if dtype.is_float else 5
    return np.asarray(number).astype(dtype.numpy)


class Census:
    """Counts what a backend made and what of it is still alive, by class."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, weakref.ref[Any]]] = []
        self.made = 0

    def alive(self) -> dict[str, int]:
        """How many things of each class there still are."""
        found: dict[str, int] = {}
        for title, reference in self._seen:
            if reference() is not None:
                found[title] = found.get(title, 0) + 1
        return found

    def manager(self, made: MemoryManager) -> None:
        """Count a memory manager."""
        self._count(made)

    def factory(self, made: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Count a factory, and everything that it makes."""
        self._count(made)
        for name in ("create_tensor_handle", "create_constant_handle", "create_workload"):
            self._count_made(made, name)

    def context(self, made: BackendContext) -> None:
        """A context lives as long as its runtime, and is not counted."""

    def _count_made(self, factory: WorkloadFactory, name: str) -> None:
        original = getattr(type(factory), name)
        here = weakref.ref(factory)

        def counted(*arguments: Any) -> Any:
            made = original(here(), *arguments)
            self._count(made)
            return made

        _replace(factory, name, counted)

    def _count(self, made: object) -> None:
        self.made += 1
        try:
            self._seen.append((type(made).__name__, weakref.ref(made)))
        except TypeError:
            return
