"""Quantization of single numbers."""

from pyarmnn._quantization.quantize_and_dequantize import dequantize, quantize

__all__ = ["dequantize", "quantize"]
