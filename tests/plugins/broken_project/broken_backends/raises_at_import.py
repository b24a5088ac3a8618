"""Cannot be imported."""

raise RuntimeError("the driver is not there")
