"""Row S10: copies that are taken of a log while it is written, each of which a fresh brokerd can go on with."""

import shutil
import threading
from pathlib import Path

from bxcore import auditfiles
from bxcore.auditlog import Decided
from tests.fakes.audited import decided
from tests.fakes.auditplace import Place

COPIES = 20


def test_s10_a_backup_that_is_taken_during_writes_verifies_and_goes_on(tmp_path: Path) -> None:
    place, stop, written = Place(tmp_path / "live"), threading.Event(), threading.Event()
    place.audit.parent.mkdir()
    acknowledged = 0

    def write() -> None:
        nonlocal acknowledged
        with place.opened() as log:
            while not stop.is_set():
                acknowledged = log.append(decided(arguments="x" * 20_000)).seq
                written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        least = []
        for number in range(COPIES):
            # The state first: its head may then be behind the log, and never ahead of it.
            for source, name in ((place.state, "broker"), (place.audit, "audit")):
                written.clear()
                assert written.wait(60)  # so that it is written between any two
                least += [acknowledged] if name == "broker" else []
                shutil.copytree(source, tmp_path / str(number) / name)
    finally:
        stop.set()
        writer.join()
    for number in range(COPIES):
        copy = Place(tmp_path / str(number))
        with copy.opened() as log:
            assert log.head.seq >= least[number]
            log.append(decided())
        copy.assert_whole()
        which = auditfiles.names(copy.audit)
        kept = [entry.record for entry in auditfiles.entries(copy.audit, which)]
        assert sum(isinstance(record, Decided) for record in kept) > least[number]
    place.assert_whole()
    assert acknowledged >= 2 * COPIES
