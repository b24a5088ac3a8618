"""Cannot be imported."""

raise RuntimeError("the driver is missing")
