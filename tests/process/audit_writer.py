"""A process that appends to an audit log for ever and says each number once it is acknowledged."""

import sys
from pathlib import Path

from brokerd.audit import AuditLog
from bxcore.deadline import SystemClock
from bxcore.errors import StateError
from bxcore.files import DiskFiles
from tests.fakes.audited import decided


def main(top: Path) -> int:
    try:
        log = AuditLog.open(top / "audit", top / "broker", disk=DiskFiles(), clock=SystemClock())
    except StateError as error:
        sys.stdout.write(f"{error.code}\n")
        return 74
    make = decided(arguments="x" * 20_000)
    while True:
        sys.stdout.write(f"{log.append(make).seq}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
