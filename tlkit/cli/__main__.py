"""``python -m tlkit.cli`` is ``tlkit``."""

import sys

from tlkit.cli.app import main

sys.exit(main())
