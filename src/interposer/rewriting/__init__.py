"""Rewriting of graphs: the form of a rewrite, the driver that applies rewrites, and rewrites that move transposes.

The optimizer and the writers of model files use it. A rewrite is a pure function from a layer to what replaces it.
"""
