"""Inference engines as backends: each compiles whole parts of a network with a package that may be installed or not.

A module each, found by its entry point, and used only where somebody names it: `onnxruntime`, `openvino`, `torch` ...
What they have in common is in `engine` (support, parts, workloads) and `options`. A module imports its engine's package
when it first compiles something.
"""
