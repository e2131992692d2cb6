"""Verifies one audit log in a process of its own; prints seconds, bytes, records, and the most memory it had (kB)."""

import sys
import time
from pathlib import Path

from bxcore import auditfiles
from bxcore.chain import Verifier


def _most_kilobytes() -> int:
    """Return the most memory that this program had. Not getrusage(): that remembers whoever started it, before exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def main(directory: Path) -> int:
    began = time.perf_counter()
    verifier = Verifier()
    for name in auditfiles.names(directory):
        auditfiles.feed(verifier, directory, name)
    report = verifier.finish()
    took = time.perf_counter() - began
    print(took, report.bytes, report.records, _most_kilobytes())
    return 0 if report.broken is None and report.torn is None else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
