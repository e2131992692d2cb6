"""Who exists: user names, and whether an account is a bot's; asked of the server and remembered for a while.

Threads: one, inbound's. Remembered in memory and bounded; `forget` empties it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Protocol

from bxcore import logs
from bxcore.deadline import Clock
from bxcore.ids import MattermostId
from gatewayd.faults import MattermostDenied, MattermostRefused, MattermostUnclear
from gatewayd.posts import Account

log = logs.get("names")

KEPT_MS = 600_000
"""A name that was given to somebody is seen after so long."""
LEFT_OUT_MOST = 3
_KEPT_MOST = 4_096
_ASKED_MOST = 100
"""Names in one request."""


class Users(Protocol):
    """The two calls that are made."""

    def usernames(self, names: Sequence[str], /) -> tuple[Account, ...]:
        """Return the accounts that exist of these names."""
        ...

    def users(self, ids: Sequence[MattermostId], /) -> tuple[Account, ...]:
        """Return the accounts that exist of these ids."""
        ...


class KnownNames:
    """Which user names exist, as addressing.Names. `ask` gives the connection to ask over."""

    def __init__(self, ask: Callable[[], Users], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, bool] = {}
        self._since = clock.monotonic_ms()

    def existing(self, names: Collection[str]) -> frozenset[str]:
        """Return those that exist. Raises MattermostFault where the server cannot be asked now.

        Where it will not say, nobody exists: then the bot's own name still counts, and others do not.
        """
        self._age()
        unknown = sorted(name for name in set(names) if name not in self._known)
        known = {name for name in names if self._known.get(name)}
        while batch := list(islice(unknown, _ASKED_MOST)):
            del unknown[:_ASKED_MOST]
            known |= self._asked(batch)
        return frozenset(known)

    def _asked(self, batch: list[str]) -> set[str]:
        try:
            found = {account.username.lower() for account in self._ask().usernames(batch)}
        except (MattermostDenied, MattermostRefused) as error:
            log.warning("names unknown count=%d code=%s status=%d", len(batch), error.code, error.status)
            return set()
        if len(self._known) + len(batch) > _KEPT_MOST:
            self._known.clear()
        self._known.update({name: name in found for name in batch})
        return found & set(batch)

    def _age(self) -> None:
        now = self._clock.monotonic_ms()
        if now - self._since >= KEPT_MS:
            self._known.clear()
            self._since = now


class Accounts:
    """Whether an account is a person's. Each is asked about once, until `forget`."""

    def __init__(self, ask: Callable[[], Users]) -> None:
        self._ask = ask
        self._people: dict[MattermostId, bool] = {}
        self._fresh: set[MattermostId] = set()
        self._left_out: Counter[MattermostId] = Counter()

    def is_person(self, user: MattermostId, others: Collection[MattermostId] = ()) -> bool:
        """Say whether `user` exists and is no bot. `others` are asked about along with it.

        Raises MattermostFault; also where the answer leaves out a user, whose post we hold after all. Who is left out
        LEFT_OUT_MOST times is no person, and is asked about again with the next post.
        """
        if user not in self._fresh:
            self._look_up(user, others)
        return self._people.get(user, False)

    def known(self, user: MattermostId) -> bool | None:
        """Say the same of old, without asking; None where it never was known."""
        return self._people.get(user)

    def forget(self) -> None:
        """Ask again: after a gap accounts may have changed."""
        self._fresh.clear()
        self._left_out.clear()

    def _look_up(self, user: MattermostId, others: Collection[MattermostId]) -> None:
        asked = [user, *(other for other in others if other != user and other not in self._fresh)]
        found = {account.id: not account.is_bot for account in self._ask().users(asked)}
        if max(len(self._people), len(self._left_out)) > _KEPT_MOST:
            for kept in (self._people, self._fresh, self._left_out):
                kept.clear()
        self._people.update(found)
        self._fresh.update(found)
        if user in found:
            self._left_out.pop(user, None)
            return
        self._people.pop(user, None)
        self._left_out[user] += 1
        if self._left_out[user] < LEFT_OUT_MOST:
            raise MattermostUnclear(f"the server does not say who {user} is, of whom it has a post")
        if self._left_out[user] == LEFT_OUT_MOST:
            log.warning("not heard, the server does not say who it is user=%s code=mattermost_unclear", user)
