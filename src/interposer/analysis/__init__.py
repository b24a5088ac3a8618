"""Tools for whole networks: what the command line does, for programs. Imported when first used."""
