"""The arguments of the commands: one module for each command, which imports little, and the shared ones."""
