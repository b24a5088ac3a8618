"""An interpreter of a host: the functions of its context, and what they return, checked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from interposer.bridges.embedding import native
from interposer.bridges.litert import abi
from interposer.core.errors import ExecutionError, ParseError

__all__ = ["Host", "Part", "check", "counted"]

_MOST_TENSORS: Final = 1 << 24
_MOST_NODES: Final = 1 << 20


class Part(NamedTuple):
    """Nodes that the host runs as one: their numbers, and the tensors that they read and write as a whole."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @classmethod
    def at(cls, address: int) -> Part:
        """Return the part that the struct at an address describes."""
        params = abi.DelegateParams.from_address(address)
        return cls(*map(abi.integers, (params.nodes, params.inputs, params.outputs)))


class Host:
    """The context at an address, which is valid during the call of the host that passed it.

    Raises:
        ParseError: what is there cannot be a context; methods raise it too.
    """

    def __init__(self, address: int) -> None:
        self.address, self.context = address, abi.Context.from_address(address)
        count = self.context.tensors_size
        check(0 < count <= _MOST_TENSORS and bool(self.context.tensors), f"it has {count} tensors", "the context")

    @property
    def tensors(self) -> Sequence[Any]:
        """The structs `abi.Tensor` of all tensors, without a copy. The host may move them when it adds tensors."""
        array: Sequence[Any] = (abi.Tensor * self.context.tensors_size).from_address(self.context.tensors)
        return array

    def nodes(self) -> dict[int, tuple[Any, Any]]:
        """Return `abi.Node` and `abi.Registration` of each node of the execution plan in order, by number."""
        find = _function(self.context.get_node_and_registration, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        nodes = {}
        for number in self._plan():
            node, registration = ctypes.c_void_p(), ctypes.c_void_p()
            status = find(self.address, number, ctypes.addressof(node), ctypes.addressof(registration))
            is_complete = status == abi.OK and node.value and registration.value
            check(bool(is_complete), f"the host returns status {status}", f"node {number}")
            nodes[number] = (
                abi.Node.from_address(node.value or 0),
                abi.Registration.from_address(registration.value or 0),
            )
        return nodes

    def _plan(self) -> tuple[int, ...]:
        plan = ctypes.c_void_p()
        status = _function(self.context.get_execution_plan, ctypes.c_void_p)(self.address, ctypes.addressof(plan))
        check(status == abi.OK and bool(plan.value), f"the host returns status {status}", "the execution plan")
        count = ctypes.c_int.from_address(plan.value or 0).value
        check(0 <= count <= _MOST_NODES, f"it has {count} nodes", "the execution plan")
        numbers = abi.integers(plan.value)
        check(all(0 <= number <= _MOST_NODES for number in numbers), "it has numbers of no nodes", "the execution plan")
        return numbers

    def partition(self, nodes: Sequence[int]) -> list[Part]:
        """Return the parts in which the host would run these nodes if a delegate takes them."""
        parts, count = ctypes.c_void_p(), ctypes.c_int()
        preview = _function(self.context.preview_partitioning, *[ctypes.c_void_p] * 3)
        array = counted(nodes)
        status = preview(self.address, ctypes.addressof(array), ctypes.addressof(parts), ctypes.addressof(count))
        check(status == abi.OK and 0 <= count.value <= _MOST_NODES, f"the host returns status {status}", "the parts")
        size = ctypes.sizeof(abi.DelegateParams)
        return [Part.at((parts.value or 0) + number * size) for number in range(count.value)]

    def resize(self, index: int, shape: Sequence[int]) -> None:
        """Give a tensor a shape; the host gives a dynamic tensor memory for it at once, and others before the next run.

        Raises:
            ExecutionError: the host refuses it.
        """
        tensor = self.tensors[index]
        if abi.integers(tensor.dims) == tuple(shape) and not self.is_dynamic(index):
            return
        status = native().interposer_bridge_litert_resize(
            ctypes.c_void_p(self.address), ctypes.byref(self.tensors[index]), ctypes.byref(counted(shape))
        )
        if status != abi.OK:
            raise ExecutionError(f"the host cannot give tensor {index} the shape {list(shape)}")

    def is_dynamic(self, index: int) -> bool:
        """Return True if the host allocates a tensor when it is resized during a run."""
        return bool(self.tensors[index].allocation_type == abi.DYNAMIC)

    def make_dynamic(self, index: int) -> None:
        """Let the host expect that a tensor gets its shape, and memory, during a run; see `resize`."""
        tensor = self.tensors[index]
        if tensor.allocation_type != abi.DYNAMIC:
            tensor.allocation_type, tensor.data = abi.DYNAMIC, None


def counted(numbers: Sequence[int]) -> Any:
    """Return an array of C ints that is preceded by its length, as the host's functions take it."""
    return (ctypes.c_int * (len(numbers) + 1))(len(numbers), *numbers)


def check(condition: bool, text: str, where: str) -> None:
    """Raise `ParseError` unless a condition holds that all known hosts satisfy; `where` names what violates it."""
    if not condition:
        raise ParseError(f"{text}; the host is not one whose structs are known", where=where)


def _function(address: int | None, *types: Any) -> Callable[..., int]:
    """Return the function of a context at `address`; it takes the context and values of `types`."""
    check(bool(address), "a function is missing", "the context")
    function: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *types)(address or 0)
    return function
