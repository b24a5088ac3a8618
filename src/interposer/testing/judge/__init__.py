"""The judge: comparison of a backend with the reference kernels, on random or given networks, in child processes."""

from interposer.testing.judge.campaign import campaign
from interposer.testing.judge.finding import Finding
from interposer.testing.judge.subject import Conditions, Outcome, Sort, Subject, Verdict
from interposer.testing.judge.summary import Campaign

__all__ = ["Campaign", "Conditions", "Finding", "Outcome", "Sort", "Subject", "Verdict", "campaign"]
