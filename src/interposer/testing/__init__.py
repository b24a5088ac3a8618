"""The conformance kit: samples of every operator, and checks that a backend author runs on their own backend."""

from interposer.testing.bench import Settings
from interposer.testing.conformance import Case, Conformance, check_backend, conformance_tests
from interposer.testing.judge import Campaign, Finding, campaign
from interposer.testing.judge.replaying import judge_network, replay
from interposer.testing.known_samples import samples_of
from interposer.testing.outcome import Result, Status
from interposer.testing.report import Report
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.tolerances import Tolerance, Tolerances
from interposer.testing.traits import trait_errors

__all__ = [
    "Campaign",
    "Case",
    "Conformance",
    "Finding",
    "Given",
    "Report",
    "Result",
    "Sample",
    "Settings",
    "Status",
    "Tolerance",
    "Tolerances",
    "campaign",
    "check_backend",
    "conformance_tests",
    "given",
    "judge_network",
    "of",
    "replay",
    "samples",
    "samples_of",
    "trait_errors",
    "weights",
]
