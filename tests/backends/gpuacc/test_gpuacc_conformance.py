"""GpuAcc and the conformance kit: a part of the samples for each profile, and slowly all of them."""

from __future__ import annotations

import os

import pytest

from interposer.core.schema import registered_ops
from interposer.core.types import DataType
from interposer.testing import Settings, Tolerance, Tolerances, campaign, check_backend, samples_of

EXACT_INTEGERS = Tolerances({DataType.FLOAT32: Tolerance(1e-4, 1e-5), DataType.FLOAT16: Tolerance(1e-2, 1e-2)}, steps=0)
"""Quantized results equal those of the reference."""


def report_of(profile, only, every):
    samples = [one for op in registered_ops().values() for one in samples_of(op)][::every]
    return check_backend("GpuAcc", only=only, samples=samples, settings=Settings({"Profile": profile}, EXACT_INTEGERS))


@pytest.mark.parametrize(("profile", "every"), [("cpu", 211), ("mobile", 499), ("desktop", 499)])
def test_some_samples_have_the_results_of_the_reference(gpuacc, profile, every):
    report = report_of(profile, "results/*", every)
    assert report.ok, report
    assert report.counts["pass"]


def test_a_normalization_is_finite_if_only_its_products_with_the_scale_are_not(gpuacc):
    report = check_backend(
        "GpuAcc", only="results/BatchNormalization-magnitude-*", settings=Settings(tolerances=EXACT_INTEGERS)
    )
    assert report.ok, report
    assert report.counts["pass"]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["cpu", "mobile", "desktop"])
def test_all_samples_have_the_results_of_the_reference(gpuacc, profile):
    report = report_of(profile, "*", 1)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "quantized"])
def test_random_networks_agree_with_the_reference(gpuacc, kind):
    disabled = os.environ["INTERPOSER_DISABLED_BACKENDS"]
    environment = {"INTERPOSER_DISABLED_BACKENDS": disabled}
    report = campaign("GpuAcc", 2000, seed=11, jobs=2, shrink=0, kind=kind, environment=environment)
    assert report.ok, report
