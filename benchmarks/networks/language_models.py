"""Language models with the operators of ONNX Runtime: attention with shared caches, and weights of 4 bits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LanguageModel"]

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class LanguageModel:
    """The sizes of a Llama-like decoder whose caches have room for `positions` tokens.

    With `fused`, GroupQueryAttention rotates query and key; else RotaryEmbedding does it before.
    """

    width: int = 64
    heads: int = 4
    key_heads: int = 2
    hidden: int = 128
    layers: int = 2
    vocabulary: int = 97
    positions: int = 96
    fused: bool = True
    seed: int = 0

    @property
    def head(self) -> int:
        return self.width // self.heads

    def caches(self, batch: int = 1) -> list[np.ndarray]:
        """Return empty caches: keys and values of each layer."""
        shape = (batch, self.key_heads, self.positions, self.head)
        return [np.zeros(shape, np.float32) for _ in range(2 * self.layers)]

    def model(self) -> onnx.ModelProto:
        """Return the network with float weights.

        Its inputs are ids, seqlens_k, total_sequence_length, the positions unless `fused`, and the caches. Its outputs
        are the logits and the caches.
        """
        return _Builder(self).build()

    def quantized(self, **options: Any) -> bytes:
        """Return the file of the network with weights of 4 bits, by the quantizer of the package onnxruntime."""
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # noqa: PLC0415 - optional

        logging.getLogger("onnxruntime.quantization").setLevel(logging.WARNING)
        quantizer = MatMulNBitsQuantizer(self.model(), block_size=32, **options)
        quantizer.process()
        return bytes(quantizer.model.model.SerializeToString())

    def feeds(self, tokens: Sequence[int], new: int) -> dict[str, np.ndarray]:
        """Return the inputs other than the caches for the last `new` of all tokens so far."""
        total = len(tokens)
        feeds = {
            "ids": np.array([tokens[-new:]]),
            "seqlens_k": np.array([total - 1], np.int32),
            "total_sequence_length": np.array([total], np.int32),
        }
        return feeds if self.fused else feeds | {"position_ids": np.arange(total - new, total)[np.newaxis]}


class _Builder:
    def __init__(self, design: LanguageModel) -> None:
        self.design = design
        self.random = np.random.default_rng(design.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.caches: list[str] = []

    def node(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        name = f"{kind}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name, domain=domain, **attributes))
        return name if outputs == 1 else names

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def weights(self, rows: int, columns: int) -> str:
        return self.constant(self.random.standard_normal((rows, columns)) / np.sqrt(rows))

    def product(self, x: str, rows: int, columns: int) -> str:
        return self.node("MatMul", x, self.weights(rows, columns))

    def build(self) -> onnx.ModelProto:
        design = self.design
        table = self.constant(self.random.standard_normal((design.vocabulary, design.width)))
        x = self.node("Gather", table, "ids")
        angles = np.outer(np.arange(2 * design.positions), 1e4 ** (-np.arange(design.head // 2) / (design.head // 2)))
        tables = (self.constant(np.cos(angles)), self.constant(np.sin(angles)))
        norm, total = self.node("SimplifiedLayerNormalization", x, self.gamma(), axis=-1, epsilon=1e-5), x
        for _ in range(design.layers):
            norm, total = self.skipped(total, self.attention(norm, tables))
            norm, total = self.skipped(total, self.gated(norm))
        head = self.weights(design.width, design.vocabulary)
        self.nodes.append(helper.make_node("MatMul", [norm, head], ["logits"], "logits"))
        return self.finished()

    def gamma(self) -> str:
        return self.constant(1 + 0.1 * self.random.standard_normal(self.design.width))

    def skipped(self, x: str, y: str) -> tuple[str, str]:
        """Return the normalized sum, and the sum."""
        names = [f"norm_{len(self.nodes)}", "", "", f"sum_{len(self.nodes)}"]
        operands = [x, y, self.gamma()]
        kind = "SkipSimplifiedLayerNormalization"
        self.nodes.append(helper.make_node(kind, operands, names, names[0], domain=MICROSOFT, epsilon=1e-5))
        return names[0], names[3]

    def attention(self, x: str, tables: tuple[str, str]) -> str:
        design, number = self.design, len(self.caches) // 2
        narrow = design.key_heads * design.head
        query, key, value = (self.product(x, design.width, width) for width in (design.width, narrow, narrow))
        if not design.fused:
            query, key = (
                self.node("RotaryEmbedding", y, "position_ids", *tables, domain=MICROSOFT) for y in (query, key)
            )
        past = [f"past_{number}_key", f"past_{number}_value"]
        operands = [query, key, value, *past, "seqlens_k", "total_sequence_length", *(tables if design.fused else ())]
        heads = {"num_heads": design.heads, "kv_num_heads": design.key_heads, "do_rotary": int(design.fused)}
        output, *present = (f"attention_{number}", f"present_{number}_key", f"present_{number}_value")
        self.nodes.append(
            helper.make_node("GroupQueryAttention", operands, [output, *present], output, domain=MICROSOFT, **heads)
        )
        self.caches += past
        return self.product(output, design.width, design.width)

    def gated(self, x: str) -> str:
        design = self.design
        gate, linear = (self.product(x, design.width, design.hidden) for _ in range(2))
        silu = self.node("Mul", gate, self.node("Sigmoid", gate))
        return self.product(self.node("Mul", silu, linear), design.hidden, design.width)

    def finished(self) -> onnx.ModelProto:
        design = self.design
        tensor = helper.make_tensor_value_info
        shape = ["batch", design.key_heads, design.positions, design.head]
        inputs = [tensor("ids", TensorProto.INT64, ["batch", "steps"])]
        inputs += [tensor("seqlens_k", TensorProto.INT32, ["batch"])]
        inputs += [tensor("total_sequence_length", TensorProto.INT32, [1])]
        if not design.fused:
            inputs.append(tensor("position_ids", TensorProto.INT64, ["batch", "steps"]))
        inputs += [tensor(name, TensorProto.FLOAT, shape) for name in self.caches]
        presents = [name.replace("past", "present") for name in self.caches]
        outputs = [tensor("logits", TensorProto.FLOAT, ["batch", "steps", design.vocabulary])]
        outputs += [tensor(name, TensorProto.FLOAT, shape) for name in presents]
        graph = helper.make_graph(self.nodes, "language_model", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
