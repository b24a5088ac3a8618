"""Quantization after training: from a float network and data to a network on quantized tensors.

`quantize` is the only function that most programs need. Its modules are imported on first use.
"""

from interposer.quantization.files import read_samples
from interposer.quantization.layer_report import LayerReport, OutputReport
from interposer.quantization.observers import OBSERVERS, Observer
from interposer.quantization.quantizer import QuantizedNetwork, quantize
from interposer.quantization.report import QuantizationReport
from interposer.quantization.schemes import SCHEMES, STORAGE, Scheme
from interposer.session.images import Preprocessing

__all__ = [
    "OBSERVERS",
    "SCHEMES",
    "STORAGE",
    "LayerReport",
    "Observer",
    "OutputReport",
    "Preprocessing",
    "QuantizationReport",
    "QuantizedNetwork",
    "Scheme",
    "quantize",
    "read_samples",
]
