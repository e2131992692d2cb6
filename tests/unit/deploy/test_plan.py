"""What `make chat` runs."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import plan
from deploy.local.home import Home

HOME = Home(Path("/home/a/.state"))


def test_the_small_model_is_hindered_from_repeating_itself() -> None:
    argv = plan.model_server(HOME, None).argv
    assert argv[-2:] == ("--repeat-penalty", plan.SMALL_MODEL_PENALTY)


def test_another_model_is_served_as_it_is() -> None:
    argv = plan.model_server(HOME, Path("/m.gguf")).argv
    assert argv[-2:] == ("--model", "/m.gguf")
    assert "--repeat-penalty" not in argv


def test_what_to_type_to_go_on_is_short_where_nothing_was_asked_for() -> None:
    home = Home(plan.ROOT / ".state")
    assert plan.make_chat(home, upstream=None, model=None, tools=True) == "make chat SESSION={session}"


def test_what_to_type_to_go_on_names_the_server() -> None:
    home = Home(plan.ROOT / ".state")
    line = plan.make_chat(home, upstream="http://host:8080", model=None, tools=True)
    assert line == "make chat UPSTREAM=http://host:8080 SESSION={session}"


# As our Makefile has it: the variables are exported, ARGS is the recipe's own words.
MAKEFILE = """\
SHELL := /bin/bash
export UPSTREAM MODEL SESSION
chat:
\t@exec $(PYTHON) -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$$UPSTREAM" "$$MODEL" "$$SESSION" $(ARGS)
"""


@pytest.mark.parametrize("odd", ["a b", "it's", 'say "x"', "$HOME", "$(shell id)", "a#b", "x;y", "back\\slash"])
def test_what_to_type_to_go_on_means_the_same_through_shell_and_make(tmp_path: Path, odd: str) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    home, model = Home(Path(f"/h/{odd}")), Path(f"/m/{odd}.gguf")
    line = plan.make_chat(home, upstream=f"unix:/{odd}", model=model, tools=False).replace("{session}", "s-1")
    command = f"make -s --no-print-directory PYTHON={shlex.quote(sys.executable)} {line.removeprefix('make ')}"
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [f"unix:/{odd}", str(model), "s-1", "--home", f"/h/{odd}", "--no-tools"]


def test_a_break_is_accepted_by_the_first_start_alone() -> None:
    part = plan.brokerd(HOME, accept_break=True)
    assert part.once == ("--accept-break",)
    assert "--accept-break" not in part.argv
    assert plan.brokerd(HOME).once == ()


def test_coming_back_names_mattermost_again() -> None:
    variables = {"MATTERMOST": "https://chat.example.org", "MATTERMOST_TOKEN": "/a b", "MATTERMOST_CA": None}
    line = plan.make_chat(Home(plan.STATE), upstream=None, model=None, tools=True, mattermost=variables)
    assert line == "make chat MATTERMOST=https://chat.example.org MATTERMOST_TOKEN='/a b' SESSION={session}"


def test_gatewayd_alone_has_a_network() -> None:
    assert plan.gatewayd(HOME).network
    assert not plan.brokerd(HOME).network
    assert not plan.loopd(HOME).network
