"""Each role in turn taken over by a program that tries everything: what worked is the table of docs/threat-model.md.

The same from the host, as a role's user: what an escape from its container would be worth.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bxcore import wiring as wirings
from bxcore.wire.kinds import KINDS
from deploy.local.home import ROLES
from tests.container.appliance import measured, takeover
from tests.container.appliance import rig as rigs
from tests.container.appliance.measured import Table
from tests.container.appliance.rig import GATEWAYD, STATE, Rig

WIRING = wirings.load(ROLES)
WRITTEN = STATE.parent / "threat-table.md"
Rows = list[tuple[str, str]]
LISTENER = "a listener on the host's network"


@pytest.fixture(scope="module")
def found(rig: Rig) -> Table:
    """The whole table, measured. It is printed, and written below .state."""
    rig.prepare()
    rig.up()
    table: dict[tuple[str, str], frozenset[str]] = {}
    for role in WIRING.roles:
        table |= measured.table(role, rig.taken_over(role), rig.appliance.wiring)
        rig.up()
    if rig.appliance.place.users.own:
        for name in WIRING.users:
            table |= measured.table(f"the user {name}", _on_the_host(rig, name), rig.appliance.wiring)
    WRITTEN.write_text(measured.written(table), encoding="utf-8")
    print(f"\n{measured.written(table)}")
    return table


def _on_the_host(rig: Rig, name: str) -> Rows:
    """Run takeover.py on the host as one of the users, in no container."""
    become = rig.as_user(name)
    argv = [*become, sys.executable, "-I", "-S", "-c", rigs.TAKEOVER, json.dumps({**rig.all_there_is(), "places": []})]
    if not os.access(sys.executable, os.X_OK) or Path(sys.executable).is_relative_to("/root"):
        argv[len(become)] = "/usr/bin/python3"
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", timeout=120)
    assert ran.returncode == 0, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith(takeover.MARK)]
    return [(thing, what) for thing, what in json.loads(line.removeprefix(takeover.MARK))]


def test_nobody_can_do_more_than_the_page_says(rig: Rig, found: Table) -> None:
    own = rig.appliance.place.users.own
    more = measured.beyond(found if own else measured.without_users(found), measured.documented())
    assert more == [], "\n".join(["", "not in docs/threat-model.md:", *more])


def test_the_page_says_no_more_than_is_so(rig: Rig, found: Table, separate_users: None) -> None:
    """A row that nothing backs would let something in later."""
    page = {key: what for key, what in measured.documented().items() if key[1] != "/dev"}  # read-only from Podman 5 on
    if not rig.view(GATEWAYD).on_the_hosts_network:
        page.pop((GATEWAYD, LISTENER))
    assert measured.beyond(page, found) == []


def test_every_place_is_on_the_page() -> None:
    places = {place for place, _ in measured.documented()}
    assert places == {*WIRING.roles, *(f"the user {name}" for name in WIRING.users)}


def test_the_users_are_measured_too(found: Table, separate_users: None) -> None:
    assert {f"the user {name}" for name in WIRING.users} <= {place for place, _ in found}


def test_nobody_but_the_owner_reaches_what_the_owner_says_yes_on(found: Table) -> None:
    for edge in WIRING.edges:
        if edge.client == wirings.OWNER:
            listener = f"the user {WIRING.user(edge.listener)}"
            assert {place for place, thing in found if thing == edge.path} <= {listener}


def test_on_brokerds_socket_loopd_can_ask_for_a_tool_and_say_nothing_else(found: Table) -> None:
    assert found[("loopd", WIRING.edge("broker").path)] == {"connects", "answers tool_request"}


def test_gatewayd_speaks_in_conversations_and_reaches_neither_calls_nor_answers(found: Table) -> None:
    """It can hold a conversation, as whoever may speak; what it says of a question brokerd itself has asked it."""
    of_gatewayd = {thing for place, thing in found if place == GATEWAYD}
    assert of_gatewayd.isdisjoint(
        {WIRING.edge(name).path for name in ("broker", "admin", "loop-owner", "tool-runner", "infer")}
    )
    assert WIRING.edge("loop-gateway").path in of_gatewayd


def test_nobody_but_gatewayd_and_its_user_reads_the_token(found: Table) -> None:
    for thing in ("the bot's token", f"secrets of {GATEWAYD}"):
        assert {place for place, other in found if other == thing} <= {GATEWAYD, f"the user bx-{GATEWAYD}"}


def test_every_kind_of_the_wire_is_sent() -> None:
    assert set(rigs.frames()) > set(KINDS)


def test_a_table_that_grew_is_named() -> None:
    page = measured.documented()
    key = ("loopd", WIRING.edge("broker").path)
    grown = {**page, key: page[key] | {"answers approval_answer"}, ("loopd", "home/audit"): frozenset({"writes"})}
    assert measured.beyond(grown, page) == [
        "loopd: home/audit: writes",
        f"loopd: {key[1]}: answers approval_answer",
    ]
