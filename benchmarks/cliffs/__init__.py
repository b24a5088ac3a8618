"""A search for operators that are slow on CpuAcc: `python benchmarks/run.py cliffs`; see docs/benchmarks.md."""
