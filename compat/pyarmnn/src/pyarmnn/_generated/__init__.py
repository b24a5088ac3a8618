"""The modules under which PyArmNN's programs and tests find the classes of the core and of the parsers."""
