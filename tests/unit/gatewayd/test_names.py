"""Who exists is asked once for a while, in few requests, and never guessed."""

from collections.abc import Sequence

import pytest

from bxcore.ids import MattermostId
from gatewayd.faults import MattermostAway, MattermostDenied, MattermostFault, MattermostRefused, MattermostUnclear
from gatewayd.names import KEPT_MS, LEFT_OUT_MOST, Accounts, KnownNames
from gatewayd.posts import Account
from tests.fakes.clocks import HandClock
from tests.fakes.queued import BOT, OTHER, OWNER, STRANGER, account


class Server:
    """Knows these accounts; `fault` is raised instead. `asked` is each request."""

    def __init__(self, *accounts: Account) -> None:
        self.accounts = accounts
        self.fault: MattermostFault | None = None
        self.asked: list[Sequence[str]] = []

    def usernames(self, names: Sequence[str], /) -> tuple[Account, ...]:
        return tuple(account for account in self._answer(names) if account.username in names)

    def users(self, ids: Sequence[MattermostId], /) -> tuple[Account, ...]:
        return tuple(account for account in self._answer(ids) if account.id in ids)

    def _answer(self, asked: Sequence[str]) -> tuple[Account, ...]:
        self.asked.append(asked)
        if self.fault is not None:
            raise self.fault
        return self.accounts


@pytest.fixture
def server() -> Server:
    return Server(account(OWNER, "alice"), account(BOT, "bot", is_bot=True), account(OTHER, "bob"))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def names(server: Server, clock: HandClock) -> KnownNames:
    return KnownNames(lambda: server, clock)


def test_each_name_is_asked_about_once(names: KnownNames, server: Server) -> None:
    assert names.existing(["alice", "nobody"]) == {"alice"}
    assert names.existing({"alice", "nobody", "bob"}) == {"alice", "bob"}
    assert server.asked == [["alice", "nobody"], ["bob"]]


def test_what_is_known_is_asked_again_after_a_while(names: KnownNames, server: Server, clock: HandClock) -> None:
    assert names.existing(["carol"]) == frozenset()
    server.accounts = (account(STRANGER, "carol"),)
    clock.wind(KEPT_MS - 1)
    assert names.existing(["carol"]) == frozenset()
    clock.wind(1)
    assert names.existing(["carol"]) == {"carol"}


def test_many_names_are_asked_about_in_parts_and_not_all_kept(names: KnownNames, server: Server) -> None:
    many = [f"user{number}" for number in range(10_050)]
    assert names.existing([*many, "alice"]) == {"alice"}
    assert {len(asked) for asked in server.asked} == {100, 51}
    assert len(names._known) <= 4_096


@pytest.mark.parametrize("fault", [MattermostDenied("no", status=403), MattermostRefused("no", status=400)])
def test_where_the_server_will_not_say_nobody_exists_and_it_is_asked_again(
    names: KnownNames, server: Server, fault: MattermostFault
) -> None:
    server.fault = fault
    assert names.existing(["alice"]) == frozenset()
    server.fault = None
    assert names.existing(["alice"]) == {"alice"}


def test_where_the_server_is_away_nothing_is_decided(names: KnownNames, server: Server) -> None:
    server.fault = MattermostAway("away")
    with pytest.raises(MattermostAway):
        names.existing(["alice"])
    server.fault = None
    assert names.existing(["alice"]) == {"alice"}


def test_a_person_exists_and_is_no_bot(server: Server) -> None:
    accounts = Accounts(lambda: server)
    everybody = [OWNER, BOT]
    assert [accounts.is_person(user, everybody) for user in everybody] == [True, False]
    assert len(server.asked) == 1
    assert accounts.is_person(OTHER)
    assert len(server.asked) == 2


def test_who_is_left_out_of_an_answer_is_asked_about_again_before_nobody_hears_it(server: Server) -> None:
    accounts, known = Accounts(lambda: server), server.accounts
    server.accounts = ()
    for _ in range(LEFT_OUT_MOST - 1):
        with pytest.raises(MattermostUnclear):
            accounts.is_person(OWNER, [OTHER])
    server.accounts = known
    assert accounts.is_person(OWNER, [OTHER])
    assert accounts.is_person(OTHER)


def test_who_is_left_out_each_time_is_no_person_and_not_for_ever(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = Accounts(lambda: server)
    for _ in range(LEFT_OUT_MOST - 1):
        with pytest.raises(MattermostUnclear):
            accounts.is_person(STRANGER)
    assert [accounts.is_person(STRANGER) for _ in range(5)] == [False] * 5
    assert len([record for record in caplog.records if "who it is" in record.message]) == 1
    server.accounts = (account(STRANGER, "carol"),)
    assert accounts.is_person(STRANGER)


def test_what_was_known_before_a_gap_can_be_had_without_asking(server: Server) -> None:
    accounts = Accounts(lambda: server)
    assert accounts.known(OWNER) is None
    accounts.is_person(OWNER, [BOT])
    accounts.forget()
    assert [accounts.known(user) for user in (OWNER, BOT, STRANGER)] == [True, False, None]
    assert len(server.asked) == 1


def test_who_became_a_bot_is_seen_after_a_gap(server: Server) -> None:
    accounts = Accounts(lambda: server)
    assert accounts.is_person(OWNER)
    server.accounts = (account(OWNER, "alice", is_bot=True),)
    assert accounts.is_person(OWNER)
    accounts.forget()
    assert not accounts.is_person(OWNER)


def test_who_could_not_be_looked_up_is_looked_up_again(server: Server) -> None:
    accounts = Accounts(lambda: server)
    server.fault = MattermostAway("away")
    with pytest.raises(MattermostAway):
        accounts.is_person(OWNER)
    server.fault = None
    assert accounts.is_person(OWNER)
