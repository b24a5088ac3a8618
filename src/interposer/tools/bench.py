"""Public names of `interposer.analysis.bench`: Benchmarks of one network on several choices of backends."""

from interposer.analysis.bench import (
    BenchReport,
    Candidate,
    bench,
    candidates,
    random_array,
    random_inputs,
)

__all__ = [
    "BenchReport",
    "Candidate",
    "bench",
    "candidates",
    "random_array",
    "random_inputs",
]
