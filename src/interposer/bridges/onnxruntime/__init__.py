"""The bridge into ONNX Runtime: an execution provider in a plug-in library. `native/bridge/onnxruntime.c` calls it."""
