"""Public names of `interposer.analysis` under the path that they had before."""
