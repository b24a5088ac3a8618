"""The text form of graphs: `print_graph` writes it, `parse_graph` reads it."""

from interposer.ir.parser import parse_graph
from interposer.ir.printer import print_graph

__all__ = ["parse_graph", "print_graph"]
