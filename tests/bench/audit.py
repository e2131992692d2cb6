"""The audit log: what a durable record costs, how fast a log is verified, how long a year of it takes to open."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import attrs

from brokerd.audit import AuditLog
from bxcore import auditlog
from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles
from deploy.local import plan
from tests.bench import auditgen, pairs, report, stack
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.fakes.audited import decided
from tests.process.role import ROOT

APPEND_LIMIT, VERIFY_SHARE, START_SECONDS, MEMORY_MB = 1.2, 1 / 3, 5, 60
DAYS = 365
MEGABYTE = 1_000_000


@attrs.frozen(kw_only=True)
class Pass:
    """One verification of a whole log, and sha256sum over the same file."""

    seconds: float
    sum_seconds: float
    bytes: int
    peak_mb: float


def measure(sizes: Sizes) -> list[Measure]:
    with stack.home() as home:
        top = home.path / "audited"
        top.mkdir()
        rows = _append(top / "append", sizes)
        rows += _verify(top / "verify", sizes)
        rows += _start(top / "start", sizes)
    return rows


def _append(top: Path, sizes: Sizes) -> list[Measure]:
    top.mkdir()
    log = AuditLog.open(top / "audit", top / "broker", disk=DiskFiles(), clock=SystemClock())
    line = auditlog.encode(log.append(decided())) + b"\n"
    fd = os.open(top / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, line)

    def bare() -> None:
        os.write(fd, line)
        os.fsync(fd)

    try:
        ours, other = _timed(lambda: log.append(decided())), _timed(bare)
        taken = pairs.alternated(sizes.audit_appends, ours=ours, other=other)
    finally:
        log.close()
        os.close(fd)
    return [
        report.at_most("audit append over a bare write and fsync", pairs.median_ratio(taken), "x", APPEND_LIMIT),
        report.to_read("bare write and fsync of one record", pairs.median_of_other(taken) * 1000, "ms"),
    ]


def _timed(act: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        began = time.perf_counter()
        act()
        return time.perf_counter() - began

    return timed


def _verify(top: Path, sizes: Sizes) -> list[Measure]:
    say(f"writing a log of {sizes.audit_file_records:,} records")
    auditgen.write(top, files=1, records=sizes.audit_file_records)
    passes = [_pass(top) for _ in range(1 + sizes.audit_passes)][1:]  # the first finds a cold cache
    shutil.rmtree(top)
    size_mb = passes[0].bytes / MEGABYTE
    share = median(each.sum_seconds / each.seconds for each in passes)
    return [
        report.at_least("audit verify, MB/s over those of sha256sum", share, "x", VERIFY_SHARE),
        report.to_read("audit verify", size_mb / median(each.seconds for each in passes), "MB/s"),
        report.below(
            f"audit verify of {size_mb:,.0f} MB, most memory", max(each.peak_mb for each in passes), "MB", MEMORY_MB
        ),
    ]


def _pass(directory: Path) -> Pass:
    (file,) = directory.iterdir()
    began = time.perf_counter()
    subprocess.run(["sha256sum", file], stdout=subprocess.DEVNULL, check=True)
    sum_seconds = time.perf_counter() - began
    argv = [sys.executable, "-P", "-s", "-m", "tests.bench.auditpass", str(directory)]
    environment = plan.environment({}) | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise Unmeasurable(f"the log does not verify: {done.stderr}")
    seconds, size_bytes, _, peak_kb = done.stdout.split()
    return Pass(
        seconds=float(seconds),
        sum_seconds=sum_seconds,
        bytes=int(size_bytes),
        peak_mb=int(peak_kb) * 1024 / MEGABYTE,
    )


def _start(top: Path, sizes: Sizes) -> list[Measure]:
    say(f"writing {DAYS} files of {sizes.audit_year_records:,} records")
    top.mkdir()
    auditgen.write(top / "audit", files=DAYS, records=sizes.audit_year_records)
    unsealed = _opened(top)  # once more than the first time a brokerd sees a log without its seals
    sealed = median(_opened(top) for _ in range(sizes.audit_passes))
    name = f"audit log of {DAYS} files, {sizes.audit_year_records:,} records"
    return [
        report.below(f"opening an {name}", sealed, "s", START_SECONDS),
        report.to_read("the same without seals, every line verified", unsealed, "s"),
    ]


def _opened(top: Path) -> float:
    began = time.perf_counter()
    log = AuditLog.open(top / "audit", top / "broker", disk=DiskFiles(), clock=SystemClock())
    took = time.perf_counter() - began
    log.close()
    return took
