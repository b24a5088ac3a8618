"""Arm NN's external profiling protocol: streams of packets with counters and timelines."""
