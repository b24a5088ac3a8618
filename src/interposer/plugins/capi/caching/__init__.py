"""Compiled parts of networks as blobs in the cache folder, shared by all processes of a user."""
