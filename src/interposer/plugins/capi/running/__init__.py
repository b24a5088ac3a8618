"""A plug-in as a `Backend`: support queries, compilation, workloads, tensor handles and contexts."""
