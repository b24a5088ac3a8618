"""The built-in backends. They use the same plug-in interface as external backends."""
