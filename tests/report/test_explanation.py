"""The text of explanations."""

from __future__ import annotations

from interposer.core.types import TensorInfo
from interposer.report.explanation import Explanation, Verdict
from interposer.report.records import Crossing, Placement


def placed(layer: str, kind: str, backend: str, runs_in: str = "", replaced: tuple[str, ...] = ()) -> Placement:
    return Placement(layer, kind, backend, runs_in or layer, "", replaced)


EXPLANATION = Explanation(
    "net",
    ("Fast", "CpuRef"),
    (
        (placed("conv", "Convolution2d", "Fast", "fused_0", ("conv", "pad")), (Verdict("CpuRef", ()),)),
        (placed("relu", "Activation", "Fast", "fused_0"), (Verdict("CpuRef", ()),)),
        (placed("softmax", "Softmax", "CpuRef"), (Verdict("Fast", ("axis is 1", "takes the last axis")),)),
        (placed("erf", "ElementwiseUnary", "CpuRef"), (Verdict("Fast", ("no kernel",)),)),
        (placed("sin", "ElementwiseUnary", "CpuRef"), (Verdict("Fast", ("no kernel",)),)),
        (placed("mean", "Mean", "CpuRef"), (Verdict("Fast", ("no kernel",)),)),
    ),
    (
        Crossing("copy_0", "relu", "Fast", "CpuRef", TensorInfo((1, 1000))),
        Crossing("copy_1", "conv", "Fast", "CpuRef", TensorInfo((1, 1000))),
    ),
    (("Gone", "there is no such device"),),
    ("WARNING: backend 'Gone' is skipped: there is no such device",),
    ("backend 'Gone' is skipped: there is no such device",),
)


def test_every_reason_stands_once_and_layers_refer_to_it():
    assert (
        str(EXPLANATION)
        == """\
network 'net': 6 layers, 2 copies between backends
  Fast: 2 layers, refuses 4
    [1] Softmax (1): axis is 1; takes the last axis
    [2] ElementwiseUnary (2), Mean (1): no kernel
  CpuRef: 4 layers, could run 2 more
  copied from Fast to CpuRef (8,000 bytes): relu, conv
  backend 'Gone' is skipped: there is no such device
  layer    operator          backend  runs in  stands also for  refused by
  conv     Convolution2d     Fast     fused_0  pad
  relu     Activation        Fast     fused_0
  softmax  Softmax           CpuRef                             Fast [1]
  erf      ElementwiseUnary  CpuRef                             Fast [2]
  sin      ElementwiseUnary  CpuRef                             Fast [2]
  mean     Mean              CpuRef                             Fast [2]"""
    )


def test_of_a_single_backend_there_is_little_to_say():
    explanation = Explanation("net", ("CpuRef",), ((placed("mean", "Mean", "CpuRef"), ()),), (), (), ())
    assert (
        str(explanation)
        == """\
network 'net': 1 layer
  CpuRef: 1 layer
  layer  operator  backend
  mean   Mean      CpuRef"""
    )


def test_a_network_without_layers_has_an_explanation():
    assert (
        str(Explanation("net", ("CpuRef",), (), (), (), ()))
        == """\
network 'net': 0 layers
  CpuRef: 0 layers
  layer  operator  backend"""
    )


def test_as_data_every_layer_has_the_verdicts_of_the_others():
    result = EXPLANATION.to_dict()
    assert result["counts"] == {"Fast": 2, "CpuRef": 4}
    assert [layer["others"] for layer in result["layers"][:3]] == [
        {"CpuRef": ["could, ranked lower"]},
        {"CpuRef": ["could, ranked lower"]},
        {"Fast": ["axis is 1", "takes the last axis"]},
    ]
    assert result["absent"] == [{"id": "Gone", "reason": "there is no such device"}]
    assert [copy["bytes"] for copy in result["copies"]] == [4000, 4000]
