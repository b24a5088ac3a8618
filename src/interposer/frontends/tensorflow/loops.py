"""Loops of TensorFlow 1 in a graph, which are made of the nodes Enter, Merge, Switch, NextIteration and Exit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.frontends.tensorflow.messages import NodeDef

__all__ = ["Loop", "Loops", "Place"]

_ENTER: Final = frozenset({"Enter", "RefEnter"})
_MERGE: Final = frozenset({"Merge", "RefMerge"})
_SWITCH: Final = frozenset({"Switch", "RefSwitch"})
_EXIT: Final = frozenset({"Exit", "RefExit"})
_NEXT: Final = frozenset({"NextIteration", "RefNextIteration"})


@dataclass(slots=True)
class Place:
    """A carried value of a loop: what enters, the nodes that pass it on, and what the next iteration gets."""

    entry: str
    merge: str
    following: str
    switch: str = ""
    exit: str = ""


@dataclass(slots=True)
class Loop:
    """A loop: the values that it carries, those that enter once (by the name of the node), and its condition."""

    name: str
    places: list[Place] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    condition: str = ""

    def entries(self) -> list[str]:
        """Return the references to all values that enter the loop, carried ones first."""
        return [place.entry for place in self.places] + list(self.constants.values())


class Loops:
    """The loops of a graph by the nodes with their results."""

    def __init__(self, nodes: Mapping[str, NodeDef]) -> None:
        self._nodes = nodes
        self._loops: dict[str, Loop] = {}
        self._by_exit: dict[str, Loop] = {}
        enter_nodes = [node for node in nodes.values() if node.op in _ENTER]
        if enter_nodes:
            self._find(enter_nodes)

    def of(self, node: NodeDef) -> Loop | None:
        """Return the loop whose result a node is; None if the node is no exit of a loop."""
        return self._by_exit.get(node.name) if node.op in _EXIT else None

    def at(self, name: str) -> Loop | None:
        """Return the loop one of whose results the node with this name is; None if there is none."""
        return self._by_exit.get(name)

    def _find(self, enter_nodes: list[NodeDef]) -> None:
        merge_by_input = {}
        for node in self._nodes.values():
            if node.op in _MERGE and len(node.input) >= 2:
                for reference in node.input[:2]:
                    merge_by_input[_name(reference)] = node
        for enter_node in enter_nodes:
            frame = enter_node.attr["frame_name"].s if "frame_name" in enter_node.attr else None
            frame_name = bytes(frame or b"").decode("utf-8", "replace")
            loop = self._loops.setdefault(frame_name, Loop(frame_name))
            merge = merge_by_input.get(enter_node.name)
            if not enter_node.input:
                raise ParseError(f"node {enter_node.name!r} has no input")
            if merge is None:
                loop.constants[enter_node.name] = enter_node.input[0]
            else:
                loop.places.append(Place(enter_node.input[0], merge.name, self._following(merge, enter_node)))
        self._connect()

    def _following(self, merge: NodeDef, enter_node: NodeDef) -> str:
        input_names = [_name(reference) for reference in merge.input[:2]]
        other_inputs = [self._nodes.get(name) for name in input_names if name != enter_node.name]
        next_node = other_inputs[0] if other_inputs else None
        if next_node is None or next_node.op not in _NEXT or not next_node.input:
            raise ParseError(f"node {merge.name!r} merges no next iteration of a loop")
        return next_node.input[0]

    def _connect(self) -> None:
        place_by_merge = {place.merge: (loop, place) for loop in self._loops.values() for place in loop.places}
        place_by_switch = {}
        for node in self._nodes.values():
            if node.op in _SWITCH and len(node.input) >= 2 and _name(node.input[0]) in place_by_merge:
                loop, place = place_by_merge[_name(node.input[0])]
                condition_node = self._nodes.get(_name(node.input[1]))
                if condition_node is not None and condition_node.op == "LoopCond" and condition_node.input:
                    place.switch, loop.condition = node.name, condition_node.input[0]
                    place_by_switch[node.name] = loop, place
        for node in self._nodes.values():
            if node.op in _EXIT and node.input and _name(node.input[0]) in place_by_switch:
                loop, place = place_by_switch[_name(node.input[0])]
                place.exit = node.name
                self._by_exit[node.name] = loop


def _name(reference: str) -> str:
    return reference.partition(":")[0]
