"""python -m gradgate: the same as the command gradgate."""

import sys

from .run.command import main

sys.exit(main())
