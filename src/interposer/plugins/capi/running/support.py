"""Layer support of a plug-in: calls of ``query_support``, with validation of every answer."""

from __future__ import annotations

import ctypes

import numpy as np

from interposer.backend.capabilities import Options
from interposer.backend.support import LayerSupport, Support
from interposer.core.errors import BackendContractError, OptionError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.ir.graph import Graph, Layer
from interposer.ir.subgraph import SubgraphView
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.located import located
from interposer.plugins.capi.abi.reading import read_table, read_text
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable, checked_options

__all__ = ["DynamicSupport", "Verdict", "ask"]

UNEXPLAINED = "no reason was given"
_REASONS = {
    1: "the type of layer", 2: "a type of data", 3: "a shape", 4: "an attribute", 5: "the quantization",
    6: "an operand that is not constant", 7: "an option", 8: "its size", 9: "its neighbours", 10: "it does not pay",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict(Support):
    """A plug-in's answer for one layer, with additional information.

    `group` is the number of the group that must be run together with the layer, or None. `seconds` for one run and
    `bytes` of memory are estimates, or None. `code` is one of the reason codes in the header.
    """

    code: int = 0
    preferred: bool = False
    group: int | None = None
    seconds: float | None = None
    bytes: float | None = None


class DynamicSupport(LayerSupport):
    """Answers which layers a plug-in supports, for a network with certain options."""

    def __init__(self, library: Library, options: Options, owner: object = None) -> None:
        self.library, self._owner = library, owner
        self._options = OptionTable(checked_options(library.id, options, library.info.options, abi.SCOPE_MODEL))

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return the support for a single layer."""
        return self.query(SubgraphView(Graph(), [layer], [layer]))[0]

    def query(self, view: SubgraphView) -> list[Support]:
        """Return one verdict for each layer; layers that must not be passed to the plug-in are unsupported.

        Raises:
            BackendContractError: the answer is not valid.
            OptionError: the plug-in refuses the value of an option.
            CallError: the plug-in failed.
        """
        withheld_layers = self.library.withholding.problems(view)
        visible_view = (
            view if not withheld_layers else view.part(layer for layer in view if layer not in withheld_layers)
        )
        flat_graph = FlatGraph.of(visible_view, **self.library.table_rules)
        try:
            answers = dict(zip(visible_view, ask(self.library, flat_graph, self._options), strict=True))
        except CallError as error:
            if error.status == abi.INVALID_ARGUMENT and self._options.options:
                raise OptionError(f"backend {self.library.id!r} refuses its options: {error.message}") from error
            raise
        return [answers[layer] if layer in answers else Support.no(withheld_layers[layer]) for layer in view]


def ask(library: Library, flat: FlatGraph, options: OptionTable) -> list[Verdict]:
    """Ask the plug-in which of the layers in the tables `flat` it supports; return one verdict for each."""
    if not flat.layers:
        return []
    out = abi.Report(struct_size=ctypes.sizeof(abi.Report))
    function, arguments = library.functions["query_support"], (library.self, flat.address, options.address)
    with library.serialized():
        with located(flat):
            library.call("query_support", function, *arguments, ctypes.addressof(out))
        with library.holding(out):
            return _verdicts(library, flat, out)


def _verdicts(library: Library, flat_graph: FlatGraph, report: abi.Report) -> list[Verdict]:
    verdicts: list[Verdict] = []
    if report.verdict_count != len(flat_graph.layers):
        raise BackendContractError(
            f"query_support gave {report.verdict_count:,} verdicts for {len(flat_graph.layers):,} layers",
            backend=library.id,
        )
    table = read_table(
        abi.Verdict, report.verdicts, report.verdict_count, report.verdict_stride, "the list of verdicts"
    )
    reasons = table["reason"]
    texts = np.where(reasons["size"] > 0, reasons["data"], 0)  # so that equal verdicts without a reason have equal rows
    columns = (table["verdict"], table["reason_code"], table["group"], _estimates(table["seconds"]),
               _estimates(table["bytes"]), texts, reasons["size"])  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    verdict_of: dict[tuple[object, ...], Verdict] = {}
    for row, layer in zip(rows, flat_graph.layers, strict=True):
        if row not in verdict_of:
            verdict_of[row] = _verdict(layer, *row)
        verdicts.append(verdict_of[row])
    return verdicts


def _verdict(
    layer: Layer, kind: int, code: int, group: int, seconds: float, size: float, text: int, length: int
) -> Verdict:
    if kind == abi.NO:
        reason = read_text(abi.String(text, length), f"the reason for layer {layer}").strip()
        return Verdict((reason or _REASONS.get(code, UNEXPLAINED),), code=code)
    if kind not in (abi.YES, abi.GROUP, abi.PREFERRED):
        raise BackendContractError(f"query_support gave the verdict {kind} for layer {layer}; expected 0 to 3")
    return Verdict(
        preferred=kind == abi.PREFERRED,
        group=group if kind == abi.GROUP else None,
        seconds=seconds or None,
        bytes=size or None,
    )


def _estimates(column: Array) -> Array:
    """Return the estimates of a column, with 0 for those that are missing, so that equal rows compare equal."""
    return np.where(np.isfinite(column) & (column > 0), column, 0.0)
