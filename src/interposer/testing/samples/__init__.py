"""The samples of all operators, in one file for each family."""
