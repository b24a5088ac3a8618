"""The suite `torch` of `benchmarks/run.py`: programs of PyTorch in Interposer, through ONNX, and in other engines."""
