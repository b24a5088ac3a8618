"""``python -m interposer``: the command line."""

import sys

from interposer.cli.main import main

sys.exit(main())
