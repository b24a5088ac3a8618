"""Inference engines as backends: each compiles whole subgraphs of a network with an optional package.

Each engine has its own module and entry point, and is used only when a caller names it: `onnxruntime`, `openvino`,
`torch` ... Shared code is in `engine` (layer support, subgraphs, workloads) and `engine_options`. A module imports the
package of its engine when it first compiles a subgraph.
"""
