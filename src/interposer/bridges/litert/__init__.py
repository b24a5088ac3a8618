"""The delegate for LiteRT and TensorFlow Lite: the graph of a host from its C structs, kernels, and options."""
