"""Wants to end the program that imports it."""

import sys

sys.exit("no device")
