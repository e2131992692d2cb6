import logging
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import logs
from bxcore.errors import ConfigError

SECRET = "the owner's words"


@pytest.fixture(autouse=True)
def configured(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, threading.excepthook)
    logs.configure("loopd")
    yield
    root.handlers[:], threading.excepthook = before[0], before[2]
    root.setLevel(before[1])


def test_a_line_names_level_role_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    logs.get("turn").info("turn ended turn=%d ms=%d", 4, 812)
    line = capsys.readouterr().err
    assert line.startswith("level=info role=loopd at=20")
    assert line.endswith("Z turn ended turn=4 ms=812\n")


@pytest.mark.parametrize(
    ("created", "shown"), [(-10.0, "1970-01-01T00:00:00.000Z"), (1e15, "9999-12-31T23:59:59.999Z")]
)
def test_no_line_is_lost_under_an_impossible_clock(
    capsys: pytest.CaptureFixture[str], created: float, shown: str
) -> None:
    record = logging.makeLogRecord(
        {"name": logs.get("x").name, "levelno": logging.ERROR, "levelname": "ERROR", "msg": "said", "args": ()}
    )
    record.created = created
    logs.get("x").handle(record)
    assert capsys.readouterr().err == f"level=error role=loopd at={shown} said\n"


QUOTED = {
    "a plain word": ("main", "tool=main"),
    "a space": ("a b", 'tool="a b"'),
    "a forged pair": ("x level=error", 'tool="x level=error"'),
    "a quotation mark": ('a"b', 'tool="a\\"b"'),
    "nothing": ("", 'tool=""'),
    "a new line": ("a\nlevel=error", 'tool="a\\u{000A}level=error"'),
    "a terminal sequence": ("\x1b[2J", "tool=\\u{001B}[2J"),
    "a C1 control": ("\x9b2J", "tool=\\u{009B}2J"),
    "a line separator": ("a\u2028b", "tool=a\\u{2028}b"),
    "a direction override": ("a\u202eb", "tool=a\\u{202E}b"),
    "a lone surrogate": ("\ud800", "tool=\\u{D800}"),
    "a backslash": ("\\u{000A}", "tool=\\\\u{000A}"),
    "no text at all": (None, "tool=None"),
}


@pytest.mark.parametrize(("value", "written"), QUOTED.values(), ids=QUOTED.keys())
def test_a_value_cannot_be_mistaken_for_anything_else(
    value: object, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.get("x").info("ran tool=%s end", value)
    assert capsys.readouterr().err.endswith(f"ran {written} end\n")


@given(st.text())
def test_any_text_stays_on_one_printable_line(text: str) -> None:
    record = logging.makeLogRecord({"name": "boxmaker.x", "msg": "ran tool=%s", "args": (text,), "levelname": "INFO"})
    handler = logging.getLogger().handlers[0]
    assert handler.format(record).isprintable()
    bare = logging.makeLogRecord({"name": "boxmaker.x", "msg": text, "levelname": "INFO"})
    assert handler.format(bare).isprintable()


def test_a_percent_sign_without_arguments_is_itself(capsys: pytest.CaptureFixture[str]) -> None:
    logs.get("x").info("100%")
    assert capsys.readouterr().err.endswith(" 100%\n")


def test_a_foreign_exception_shows_its_places_and_not_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        {"a": 1}[SECRET]
    except KeyError:
        logs.get("x").exception("request failed")
    line = capsys.readouterr().err
    assert SECRET not in line
    assert "trace=KeyError<bxcore/test_logs.py:" in line
    assert line.count("\n") == 1


def test_an_exception_of_ours_shows_its_text_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ConfigError("ttl: expected a number")
    except ConfigError:
        logs.get("x").exception("request failed")
    assert "ConfigError(ttl: expected a number [config])" in capsys.readouterr().err


def test_a_file_error_shows_the_kernels_words_and_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        open(f"/nowhere/{SECRET}", "rb").close()  # noqa: PTH123
    except OSError:
        logs.get("x").exception("request failed")
    line = capsys.readouterr().err
    assert "FileNotFoundError(No such file or directory)" in line
    assert SECRET not in line


def test_the_cause_is_traced_too(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        try:
            int(SECRET)
        except ValueError as error:
            raise RuntimeError(SECRET) from error
    except RuntimeError:
        logs.get("x").exception("request failed")
    line = capsys.readouterr().err
    assert line.index("RuntimeError<") < line.index("from ValueError<")
    assert SECRET not in line


def test_a_wrong_log_call_does_not_show_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"name": "boxmaker.turn", "msg": "count=%d", "args": (SECRET,), "module": "turn", "lineno": 7}
    wrong = logging.makeLogRecord(found)
    logging.getLogger().handlers[0].handle(wrong)
    line = capsys.readouterr().err
    assert SECRET not in line
    assert "log record lost place=turn:7 error=TypeError" in line


def test_a_library_is_heard_from_error_on_and_its_words_never(capsys: pytest.CaptureFixture[str]) -> None:
    library = logging.getLogger("urllib3.connectionpool")
    library.info("GET %s", SECRET)
    library.warning("Received response with both %s", SECRET)
    logs.get("x").debug("detail")
    assert capsys.readouterr().err == ""
    try:
        raise ValueError(SECRET)
    except ValueError:
        library.exception("failed: %s", SECRET)
    line = capsys.readouterr().err
    assert "a library complained logger=urllib3.connectionpool place=test_logs:" in line
    assert SECRET not in line
    assert line.count("\n") == 1


def test_a_thread_that_dies_leaves_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def die() -> None:
        raise ValueError(SECRET)

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    line = capsys.readouterr().err
    assert "thread died code=internal trace=ValueError<bxcore/test_logs.py:" in line
    assert SECRET not in line
    assert line.count("\n") == 1
