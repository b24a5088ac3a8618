"""From folders to registered backends: search, checks of the file, the probe process, and opening."""
