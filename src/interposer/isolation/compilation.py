"""Objects that a child has compiled: the host refers to them by tokens, and a restarted child compiles them again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from interposer.backend.capabilities import Options
from interposer.backend.views import Failure, OptimizationViews, Substitution
from interposer.core.schema import Op
from interposer.core.types import Array, DataType
from interposer.ir.graph import Graph
from interposer.ir.subgraph import SubgraphView
from interposer.isolation.life import Life
from interposer.isolation.regions import Region, aligned, array_at
from interposer.isolation.supervisor import Lasting, Supervisor
from interposer.isolation.wire import Packer, Plain, Reader, Replica, reading
from interposer.ops.control import PreCompiled

__all__ = ["Compilation", "RemotePart", "packer_for"]

_numbers: Final = itertools.count(1)
_METHOD: Final = "optimize_subgraph"


class RemotePart:
    """The host's reference to an object that the backend compiled in the child process.

    It is identified by `number` among the objects of one `compilation`; `title` describes it.
    """

    __slots__ = ("compilation", "number", "title")

    def __init__(self, compilation: Compilation, number: int, title: str) -> None:
        self.compilation, self.number, self.title = compilation, number, title

    def __repr__(self) -> str:
        return f"<{self.title} in the child process of {self.compilation.supervisor.backend}>"


def packer_for(supervisor: Supervisor) -> tuple[Packer, list[Lasting]]:
    """Return an encoder of graphs for the child process of this supervisor, and an initially empty list.

    The encoder replaces objects that this child has compiled by tokens. It appends their compilations to the list,
    because these must exist in the child before the encoded graph is sent to it.
    """
    needed_objects: list[Lasting] = []

    def token(op: Op) -> Plain | None:
        part = op.object if isinstance(op, PreCompiled) else None
        if not isinstance(part, RemotePart) or part.compilation.supervisor is not supervisor:
            return None
        needed_objects.append(part.compilation)
        return {"token": [part.compilation.number, part.number]}

    return Packer(token), needed_objects


class Compilation:
    """One call of the backend's `optimize_subgraph` in the child process, which a restarted child repeats.

    The first result is stored in the host. A repetition must give the same result, since compiled objects are referred
    to by their numbers in it.
    """

    def __init__(self, supervisor: Supervisor, view: SubgraphView, options: Options) -> None:
        self.supervisor = supervisor
        self.number = next(_numbers)
        packer, self._needed = packer_for(supervisor)
        self._replica = Replica(view, packer)
        self._arrays = packer.arrays
        self._request: Plain = {
            "do": "optimize",
            "compilation": self.number,
            "graph": self._replica.plain,
            "view": self._replica.view,
            "options": dict(options),
        }
        self._life: Life | None = None
        self._answer: dict[str, Any] | None = None
        self._new_arrays: list[Array] = []
        supervisor.forget(self, "compilation", self.number)

    def ensure(self, life: Life) -> None:
        """Optimize the subgraph in the child process `life`, unless that is done already.

        Raises:
            BackendCrashedError: the result differs from the first one, so objects of the first result cannot be used.
        """
        if self._life is life:
            return
        for compilation in self._needed:
            compilation.ensure(life)
        places = self.supervisor.constants.placed(self._arrays, life)
        seconds = self.supervisor.how.deadline_seconds
        answer = life.ask(self._request | {"arrays": places}, _METHOD, seconds)
        if self._answer is None:
            self._new_arrays = self._collected(life, answer)
            self._answer = answer
        elif answer != self._answer:
            raise life.garbage("it optimizes a part in another way than before", _METHOD)
        self._life = life

    def _collected(self, life: Life, answer: Mapping[str, Any]) -> list[Array]:
        """Return copies of the arrays of a result, such as new constants.

        The child `life` writes them to shared memory. `answer` is the child's answer to the request, which lists their
        types and shapes.
        """
        with reading(f"the answer of {_METHOD}"):
            dtypes_and_shapes = [
                (DataType.of(dtype), [int(size) for size in shape]) for dtype, shape in answer["arrays"]
            ]
            sizes = [aligned(dtype.itemsize * _product(shape)) for dtype, shape in dtypes_and_shapes]
        if not sizes:
            return []
        region = Region(sum(sizes), writable=True)
        offsets = list(itertools.accumulate(sizes, initial=0))[:-1]
        life.map(region, self.supervisor.how.deadline_seconds)
        places = [[region.number, offset] for offset in offsets]
        life.ask({"do": "collect", "places": places}, _METHOD, self.supervisor.how.deadline_seconds)
        offsets_and_types = zip(offsets, dtypes_and_shapes, strict=True)
        return [array_at(region.bytes, offset, dtype, shape).copy() for offset, (dtype, shape) in offsets_and_types]

    def views(self, view: SubgraphView) -> OptimizationViews:
        """Return the result as subgraphs of `view`, after optimizing in the child if necessary.

        The caller has to validate it.

        Raises:
            WireError: the answer cannot be decoded.
        """
        self.supervisor.call(self.ensure)
        answer, reader = self._answer or {}, Reader(self._new_arrays, self._part)
        with reading(f"the answer of {_METHOD}"):
            substitutions = [self._substitution(view, row, reader) for row in answer["substitutions"]]
            failures = [Failure(self._replica.part(view, row["part"]), str(row["reason"])) for row in answer["failed"]]
            remarks = [str(remark) for remark in answer["remarks"]]
        return OptimizationViews(view, substitutions=substitutions, failed=failures, remarks=remarks)

    def _substitution(self, view: SubgraphView, plain: Plain, reader: Reader) -> Substitution:
        inputs = tuple(self._replica.values[int(layer), int(index)] for layer, index in plain["inputs"])
        replacement: Op | Graph = reader.op(plain["op"]) if plain["op"] is not None else reader.graph(plain["graph"])[0]
        return Substitution(self._replica.part(view, plain["part"]), replacement, inputs)

    def _part(self, plain: Plain) -> Op:
        number = int(plain["token"])
        return PreCompiled(num_outputs=int(plain["outputs"]), object=RemotePart(self, number, str(plain["title"])))


def _product(shape: Sequence[int]) -> int:
    size = 1
    for dimension in shape:
        if dimension < 0:
            raise ValueError(f"the shape {list(shape)}")
        size *= dimension
    return size
