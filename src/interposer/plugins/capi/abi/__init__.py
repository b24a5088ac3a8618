"""Data that crosses the C interface: structs, attributes, graphs as tables, and reading what a plug-in returns."""
