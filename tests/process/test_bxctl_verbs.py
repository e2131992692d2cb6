"""The other verbs, each a real process against a loopd that says what the test wrote."""

import json
from pathlib import Path

import pytest

from bxcore.timestamp import from_text
from bxcore.wire import channel
from bxcore.wire.control import ErrorCode
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd
from tests.process.bxctl_process import on_terminal, run

NAME = "20261130-102600-beef"
WHEN = from_text("2026-11-30T10:26:00.000Z")


def summary(opening: str = "What time is it?", *, damaged: bool = False) -> channel.SessionSummary:
    return channel.SessionSummary(
        session=loopd.session(NAME),
        started=WHEN,
        last=WHEN,
        turns=3,
        records=20,
        bytes=12_345,
        opening=opening,
        damaged=damaged,
    )


def listing(*summaries: channel.SessionSummary, total: int | None = None) -> loopd.Script:
    return loopd.replies(*summaries, channel.SessionListEnd(total=len(summaries) if total is None else total))


# -- sessions ------------------------------------------------------------------------------------------


def test_sessions_are_a_table(tmp_path: Path) -> None:
    sessions = listing(summary(), summary("two\nlines \x1b[31m", damaged=True), total=7)
    with FakeLoopd(tmp_path, {channel.SessionList: sessions}) as fake:
        done = run(tmp_path, "sessions", "list", "--limit", "2")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "session               last (UTC)        turns     size  begins with",
        f"{NAME}  2026-11-30 10:26      3  12.3 kB  What time is it?",
        f"{NAME}  2026-11-30 10:26      3  12.3 kB  DAMAGED two\\u{{000A}}lines \\u{{001B}}[31m",
    ]
    assert "2 of 7 sessions" in done.stderr.decode()
    assert fake.wait(channel.SessionList).limit == 2


def test_sessions_in_json_are_the_frames(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionList: listing(summary("ü"))}):
        done = run(tmp_path, "sessions", "list", "--json")
    first, last = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["kind"], first["opening"], first["last"]) == ("session_summary", "ü", "2026-11-30T10:26:00.000Z")
    assert last == {"kind": "session_list_end", "total": 1}


def test_no_sessions_yet_is_said(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionList: listing()}):
        done = run(tmp_path, "sessions", "list")
    assert (done.returncode, done.stdout) == (0, b"")
    assert "No sessions yet" in done.stderr.decode()


STORED = (
    '{"type":"session_start","time":"2026-11-30T10:26:00.000Z","session":"s","epoch":1}',
    '{"type":"user","time":"2026-11-30T10:26:01.000Z","key":"k","content":"What\\ntime?"}',
    '{"type":"assistant","content":null,"reasoning_content":"Ask.","tool_calls":[{"name":"clock","arguments":"{}"}]}',
    '{"type":"tool_result","name":"clock","ok":true,"content":"noon"}',
    '{"type":"assistant","turn":1,"content":"Noon \\u001b[31m.","reasoning_content":null,"tool_calls":[]}',
    '{"type":"turn_end","turn":1,"ending":"length","sentence":"It was cut."}',
    '{"type":"of_a_later_version","x":1}',
    '{"type":"user","tor',
)


def shown() -> loopd.Script:
    frames = [loopd.record(number, line) for number, line in enumerate(STORED, 1)]
    pieces = [loopd.record(2, STORED[1][:9], more=True), loopd.record(2, STORED[1][9:])]
    return loopd.replies(frames[0], *pieces, *frames[2:], channel.SessionShowEnd(lines=len(STORED)))


def test_a_session_is_shown_readable(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionShow: shown()}):
        done = run(tmp_path, "sessions", "show", NAME)
    assert done.stdout.decode().splitlines() == [
        "Session s, epoch 1, begun 2026-11-30T10:26:00.000Z",
        "",
        "2026-11-30T10:26:01.000Z",
        "you> What",
        "     time?",
        "~ Ask.",
        "· clock {}",
        "  clock:",
        "  | noon",
        "Noon \x1b[31m.",
        "! It was cut. [length]",
        '? {"type":"of_a_later_version","x":1}',
        '! epoch 1, line 8 cannot be read: {"type":"user","tor',
    ]


def test_a_session_on_a_terminal_is_escaped(tmp_path: Path) -> None:
    with (
        FakeLoopd(tmp_path, {channel.SessionShow: shown()}),
        on_terminal(tmp_path, "sessions", "show", NAME, more={"NO_COLOR": "1"}) as screen,
    ):
        assert screen.wait() == 0
    assert "Noon \\u{001B}[31m." in screen.shown
    assert "\x1b" not in screen.shown


def test_raw_is_the_stored_lines_exactly(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionShow: shown()}):
        done = run(tmp_path, "sessions", "show", NAME, "--raw")
    assert done.stdout.decode() == "".join(f"{line}\n" for line in STORED)


def test_a_session_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionShow: loopd.refuses(ErrorCode.NO_SESSION, "there is none")}):
        done = run(tmp_path, "sessions", "show", NAME)
    assert (done.returncode, done.stdout, done.stderr) == (4, b"", b"bxctl: there is none [no_session]\n")


# -- cache ---------------------------------------------------------------------------------------------


def row(turn: int, cached: int, read: int, reread: int = 0, *, lost: bool = False) -> channel.CacheRow:
    return channel.CacheRow(
        turn=turn, step=1, prompt=cached + read, cached=cached, read=read, reread=reread, output=5, lost=lost
    )


REPORT = loopd.replies(
    row(1, 0, 300),
    row(2, 300, 300),
    row(3, 0, 1_200, 600, lost=True),
    channel.CacheReportEnd(rows=3, prompt=2_100, cached=300, read=1_800, reread=600, lost=1),
)


def test_the_cache_is_drawn_for_the_newest_session(tmp_path: Path) -> None:
    scripts = {channel.SessionList: listing(summary()), channel.CacheReport: REPORT}
    with FakeLoopd(tmp_path, scripts) as fake:
        done = run(tmp_path, "cache")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        f"Session {NAME}",
        "turn  prompt  cached  new  re-read  ░ cached  █ new  ▒ re-read",
        " 1.1     300       0  300        0  " + "█" * 15,
        " 2.1     600     300  300        0  " + "░" * 15 + "█" * 15,
        " 3.1   1,200       0  600      600  " + "█" * 30 + "▒" * 30 + " lost",
        "3 requests, 2,100 prompt tokens: 14% from the cache, 1,200 new, 600 re-read; the cache was lost 1 time.",
    ]
    assert fake.wait(channel.CacheReport).session == NAME


def test_the_cache_bars_fit_the_terminal_and_its_locale(tmp_path: Path) -> None:
    with (
        FakeLoopd(tmp_path, {channel.CacheReport: REPORT}),
        on_terminal(
            tmp_path,
            "cache",
            NAME,
            columns=60,
            more={"NO_COLOR": "1", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ) as screen,
    ):
        assert screen.wait() == 0
    lines = screen.shown.split("\r\n")
    assert lines[4] == " 3.1   1,200       0  600      600  " + "#" * 9 + "!" * 10 + " lost"
    assert max(len(line) for line in lines[:5]) <= 65  # the legend alone may be longer
    assert screen.shown.isascii()


def test_no_session_to_report_on_is_said(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SessionList: listing(), channel.CacheReport: REPORT}):
        done = run(tmp_path, "cache")
    assert done.returncode == 1
    assert "[no_session]" in done.stderr.decode()


# -- doctor --------------------------------------------------------------------------------------------


def checks(*, passed: bool) -> loopd.Script:
    result = channel.CheckResult(
        name="template", passed=passed, expected="a tag\x1b", found="none", runbook="" if passed else "model_changed"
    )
    return loopd.replies(result, channel.SelfTestEnd(passed=int(passed), failed=int(not passed)))


def test_doctor_passes_where_everything_holds(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SelfTest: checks(passed=True)}):
        done = run(tmp_path, "doctor")
    assert done.returncode == 0
    assert [line[0] for line in done.stdout.decode().splitlines()[:-1]] == ["✓"] * 5
    assert done.stdout.decode().startswith(f"✓ home: {tmp_path}\n✓ loopd's socket folder: mode ")
    assert done.stdout.decode().endswith("5 passed, 0 failed.\n")


def test_doctor_tells_expected_found_and_runbook_of_a_failure(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SelfTest: checks(passed=False)}):
        done = run(tmp_path, "doctor")
    assert done.returncode == 1
    assert done.stdout.decode().endswith(
        "✗ template\n"
        "    expected  a tag\\u{001B}\n"
        "    found     none\n"
        "    mend it   docs/runbook.md, model_changed\n"
        "4 passed, 1 failed.\n"
    )


def test_doctor_in_json_is_the_status_and_the_checks(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SelfTest: checks(passed=False)}):
        done = run(tmp_path, "doctor", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [line["kind"] for line in lines] == ["check_result"] * 3 + ["loop_status_report"] + ["check_result"] * 2 + [
        "self_test_end"
    ]
    assert lines[-1] == {"kind": "self_test_end", "passed": 4, "failed": 1}


def test_doctor_without_loopd_says_what_it_can(tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere", "doctor")
    told = done.stdout.decode()
    assert done.returncode == 1
    for code in ("home_missing", "socket_folder_unsafe"):
        assert f"docs/runbook.md, {code}\n" in told


def test_doctor_of_a_loopd_that_does_not_run_names_its_entry(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor")
    assert done.returncode == 1
    assert "docs/runbook.md, peer_away\n" in done.stdout.decode()


def test_doctor_sees_a_socket_folder_that_anybody_may_enter(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.SelfTest: checks(passed=True)}):
        (tmp_path / "run" / "loop-owner").chmod(0o755)
        done = run(tmp_path, "doctor")
    assert done.returncode == 1
    assert "found     mode 0755" in done.stdout.decode()


def test_doctor_of_a_loopd_that_is_not_ready_says_what_it_waits_for(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.LoopStatus: loopd.replies(loopd.ready("the model server"))}):
        done = run(tmp_path, "doctor")
    assert done.returncode == 1
    assert "found     waiting for the model server" in done.stdout.decode()


# -- config check --------------------------------------------------------------------------------------

GOOD = {
    "inferproxy.toml": 'listen = "/run/infer.sock"\nupstream = "http://127.0.0.1:8080"\n',
    "loopd.toml": 'state = "/var"\n[listen]\nowner = "/run/loop.sock"\n[infer]\nsocket = "/run/infer.sock"\n',
    "brokerd.toml": 'grants = "/g"\naudit = "/a"\nstate = "/s"\n[listen]\nbroker = "/run/broker.sock"\n'
    'admin = "/run/admin.sock"\n[podman]\nsocket = "/p"\nimage_file = "/i"\ncalls = "/c"\nseccomp = "/m"\n',
}


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, content in {**GOOD, **{f"{role}.toml": content for role, content in files.items()}}.items():
        (folder / name).write_text(content)
    return folder


def test_config_check_passes_good_files_of_the_home(tmp_path: Path) -> None:
    folder = written(tmp_path / "etc")
    done = run(tmp_path, "config", "check")
    assert (done.returncode, done.stdout.decode()) == (0, "".join(f"✓ {folder}/{name}\n" for name in GOOD))


def test_config_check_tells_every_fault_with_file_and_line(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "other",
        loopd=GOOD["loopd.toml"] + 'slot_wait = 5\nliveness_ms = "5"\n',
        inferproxy='listen = "/run/infer.sock"\nupstream = "ftp://x"\n',
    )
    done = run(tmp_path, "config", "check", str(folder))
    told = done.stdout.decode()
    assert done.returncode == 1
    for words in (
        f"{folder}/loopd.toml:6: infer.slot_wait: unknown key",
        f"{folder}/loopd.toml:7: infer.liveness_ms: expected a whole number, got",
        f'{folder}/inferproxy.toml:2: upstream: expected "http://host:port"',
    ):
        assert words in told
    assert "[config]" in told


def test_config_check_sees_a_missing_file_and_one_that_nobody_reads(tmp_path: Path) -> None:
    folder = written(tmp_path / "etc", lopd="")
    (folder / "loopd.toml").unlink()
    done = run(tmp_path, "config", "check")
    assert done.returncode == 1
    assert f"{folder}/loopd.toml: " in done.stdout.decode()
    assert f"{folder}/lopd.toml: no role reads a file of this name" in done.stdout.decode()


GATEWAYD = """state = "/s"
[listen]
gateway = "/run/g.sock"
owner = "/run/o.sock"
[mattermost]
url = "https://chat.example.org"
[loop]
socket = "/run/l.sock"
[allow]
users = ["aaaaaaaaaaaaaaaaaaaaaaaaaa"]
"""


def test_config_check_finds_that_nobody_may_speak_in_mattermost(tmp_path: Path) -> None:
    folder = written(tmp_path / "etc", gatewayd=GATEWAYD)
    assert run(tmp_path, "config", "check").returncode == 0
    (folder / "gatewayd.toml").write_text(GATEWAYD.replace('"' + "a" * 26 + '"', ""))
    done = run(tmp_path, "config", "check")
    assert done.returncode == 1
    assert f"{folder}/gatewayd.toml:10: allow.users: nobody may speak" in done.stdout.decode()
    assert "[nobody_allowed]" in done.stdout.decode()


def test_config_check_warns_of_a_token_that_is_sent_in_the_clear(tmp_path: Path) -> None:
    folder = written(tmp_path / "etc", gatewayd=GATEWAYD.replace("https://chat.example.org", "http://127.0.0.1:8065"))
    assert "mattermost_in_clear" not in run(tmp_path, "config", "check").stdout.decode()
    (folder / "gatewayd.toml").write_text(GATEWAYD.replace("https:", "http:"))
    done = run(tmp_path, "config", "check")
    assert done.returncode == 0
    assert "http://chat.example.org: the bot's token is sent there in the clear" in done.stdout.decode()
    assert "[mattermost_in_clear]" in done.stdout.decode()


def test_config_check_without_a_directory_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "config", "check", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert "is not a directory" in done.stderr.decode()


# -- the command line itself -----------------------------------------------------------------------------


def test_help_teaches(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    told = done.stdout.decode()
    assert done.returncode == 0
    for words in (
        "Examples:",
        "BOXMAKER_HOME",
        "bxctl-history",
        "Exit codes:",
        "runbook.md",
        "doctor",
        "make chat",
        ".state/venv/bin/bxctl",
    ):
        assert words in told


def test_help_needs_none_of_the_heavy_packages(tmp_path: Path) -> None:
    done = run(tmp_path, "--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {line.split("|")[-1].strip() for line in done.stderr.decode().splitlines()}
    assert "click" in imported
    assert imported.isdisjoint({"attrs", "attr", "cattrs", "tomlkit", "requests", "readline", "bxcore.client"})


@pytest.mark.parametrize("arguments", [["nonsense"], ["chat", "--nonsense"], ["sessions", "show"]], ids=" ".join)
def test_wrong_usage_is_two(tmp_path: Path, arguments: list[str]) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Usage:" in done.stderr.decode()


def test_version(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert done.stdout.decode().startswith("bxctl 0.")
