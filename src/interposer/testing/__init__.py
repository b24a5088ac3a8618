"""The conformance kit: samples of every operator, and checks that a backend author runs on their own backend."""

from interposer.testing.sample import Given, Sample, given, of, samples, samples_of, weights

__all__ = ["Given", "Sample", "given", "of", "samples", "samples_of", "weights"]
