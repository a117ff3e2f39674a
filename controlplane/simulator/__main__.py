"""`python -m controlplane.simulator`."""

import sys

from controlplane.simulator.cli import main

if __name__ == "__main__":
    sys.exit(main())
