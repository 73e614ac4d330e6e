"""``python -m stepformer`` is the command line."""

import sys

from stepformer.cli import main

sys.exit(main())
