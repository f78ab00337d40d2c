"""`python -m memlm_cli`: the same as the installed command `memlm`."""

import sys

from memlm_cli.entry import main

sys.exit(main())
