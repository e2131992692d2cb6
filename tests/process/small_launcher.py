"""The launcher's engine with stand-ins: what launch.py does after it has made its plan.

small_launcher.py HOME PARTS-AS-JSON PROGRAM [ARGUMENT...]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "python")]

from deploy.local import conversation, stack  # noqa: E402 - the path comes first
from deploy.local.home import Home  # noqa: E402
from deploy.local.plan import Part  # noqa: E402
from deploy.local.progress import Progress  # noqa: E402
from deploy.local.wakeups import Interrupted, Wakeups  # noqa: E402


def main() -> int:
    home, progress = Home(Path(sys.argv[1])), Progress(sys.stderr)
    parts = [Part(doing=f"starting {spec['name']}", ready_seconds=60, **spec) for spec in json.loads(sys.argv[2])]
    home.prepare()
    try:
        with Wakeups() as wakeups, stack.Stack(home, wakeups, progress) as running:
            for part in parts:
                running.wait_ready(running.start(part))
            progress.clear()
            try:
                return conversation.converse(sys.argv[3:], wakeups, running.tend)
            finally:
                running.report_endings()
    except Interrupted as interrupted:
        return 128 + interrupted.number


if __name__ == "__main__":
    sys.exit(main())
