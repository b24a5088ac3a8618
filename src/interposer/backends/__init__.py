"""The built-in backends. They use the plug-in interface like anybody else's."""
