"""python -m controlplane.supervisor.reset: forget what `make up` keeps, so that it begins anew.

Logs and the demo's password stay. Refuses while a supervisor runs on the folder.
"""

from __future__ import annotations

import shutil
import sys

from controlplane.supervisor import preflight
from controlplane.supervisor.config import BadSetting, from_environment

FORGOTTEN = ("db.sqlite3*", "valkey", "sandbox", "kubeconfig", "health", "stamps", "up.json")


def main(arguments: list[str]) -> int:
    try:
        config = from_environment(arguments)
        with preflight.ownership(config):
            for pattern in FORGOTTEN:
                for path in config.state_dir.glob(pattern):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    print(f"removed {path}")
    except (preflight.CannotStart, BadSetting) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
