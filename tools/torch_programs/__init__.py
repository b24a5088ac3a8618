"""Programs of PyTorch with random weights, and the comparison of their results through Interposer with eager ones."""
