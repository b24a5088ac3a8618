"""An opened plug-in: its table of functions, its declared properties and options, and its compiled executables."""
