"""The commands `bench` and `compare` as functions for programs. The modules are imported on first use."""
