"""C3, C4, G9, N23, N25: whatever a post carries, only a person on the list starts anything, and never by an edit."""

from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd import admission, commands
from gatewayd.admission import Rules, Seen
from gatewayd.commands import Approve, Deny, Malformed
from gatewayd.entries import Kind, State, Taken
from gatewayd.posts import INTEGRATION_PROPS, Post
from tests.fakes.clocks import BEGIN
from tests.fakes.queued import BOT, DIRECT, OTHER, OWNER, STRANGER, TOWN, an_id

SECOND = an_id("second")
USERS = (OWNER, SECOND)
HOUR_MS = 3_600_000
TYPES = st.sampled_from(["", "", "", "system_add", "me", "custom_x", "slack_attachment"])
PROPS = st.dictionaries(
    st.sampled_from([*INTEGRATION_PROPS, "boxmaker", "unsafe_links"]),
    st.sampled_from(["true", "", True, None]),
    max_size=2,
)
MESSAGES = st.sampled_from(
    [
        "hello",
        "@bot hello",
        "@second hello",
        "!approve 7",
        "@bot !approve 7",
        "!deny 7",
        "!stop",
        "!dance",
        "!!x",
        "",
        "@all",
    ]
) | st.text(max_size=30)


class Names:
    def existing(self, names: Collection[str]) -> frozenset[str]:
        return frozenset({"bot", "second"}) & set(names)


def maybe(value: int) -> st.SearchStrategy[Timestamp]:
    return st.sampled_from([Timestamp(0), Timestamp(0), Timestamp(value)])


POSTS = st.builds(
    Post,
    id=st.just(an_id("post")),
    user=st.sampled_from([OWNER, SECOND, OTHER, STRANGER, BOT]),
    channel=st.sampled_from([DIRECT, TOWN, an_id("elsewhere")]),
    root=st.sampled_from([None, an_id("root")]),
    type=TYPES,
    message=MESSAGES,
    props=PROPS,
    files=st.integers(0, 2),
    create_at=st.integers(BEGIN - 2 * HOUR_MS, BEGIN + 1_000).map(Timestamp),
    edit_at=maybe(BEGIN),
    delete_at=maybe(BEGIN),
    original=st.sampled_from(["", "", "", "x"]),
)
RULES = st.builds(
    Rules,
    bot=st.just(BOT),
    bot_name=st.just("bot"),
    users=st.sampled_from([frozenset({OWNER}), frozenset({OWNER, SECOND}), frozenset({OWNER, BOT}), frozenset()]),
    approvers=st.sampled_from([frozenset({OWNER}), frozenset({OTHER}), frozenset({BOT})]),
    channels=st.sampled_from([frozenset(), frozenset({TOWN})]),
    stale_ms=st.just(HOUR_MS),
)


def decide(post: Post, rules: Rules, **found: Any) -> Taken | None:
    decided = admission.decide(Seen(post=post, age_ms=BEGIN - post.create_at, **found), rules, Names())
    return decided if isinstance(decided, Taken) else None


FOUND = st.fixed_dictionaries({"direct": st.booleans(), "own_thread": st.booleans(), "person": st.booleans()})


@given(POSTS, RULES, FOUND)
def test_what_starts_anything_was_plainly_written_by_a_person_on_a_list(
    post: Post, rules: Rules, found: dict[str, bool]
) -> None:
    taken = decide(post, rules, **found)
    if taken is None:
        return
    assert post.user != BOT
    assert post.type == ""
    assert not any(name in post.props for name in INTEGRATION_PROPS)
    assert (post.delete_at, post.original) == (0, "")
    assert found["person"]
    assert found["direct"] or post.channel in rules.channels
    if taken.state is State.WAITING:
        assert post.edit_at == 0
        assert BEGIN - post.create_at <= HOUR_MS
        command = commands.parse(taken.post.text)
        if taken.post.kind is Kind.MESSAGE:
            assert post.user in rules.users
        else:
            assert command is not None
            assert post.user in rules.users or isinstance(command, Approve | Deny | Malformed)
            assert post.user in rules.users | rules.approvers


@given(POSTS, RULES, FOUND)
def test_what_was_cheaply_refused_is_refused(post: Post, rules: Rules, found: dict[str, bool]) -> None:
    if admission.refused(post, direct=found["direct"], rules=rules) is not None:
        assert decide(post, rules, **found) is None


class Gateway:
    """One Boxmaker in a channel with others, with everybody on its list, bots included."""

    def __init__(self, me: MattermostId, name: str, everybody: frozenset[str]) -> None:
        self.me, self.name = me, name
        self.threads: set[MattermostId] = set()
        self.rules = Rules(
            bot=me, bot_name=name, users=everybody, approvers=everybody, channels=frozenset({TOWN}), stale_ms=HOUR_MS
        )

    def answers(self, post: Post, bots: Collection[MattermostId]) -> list[str]:
        """Return what it posts because of a post: its answer, or a sentence."""
        own = post.thread in self.threads
        seen = Seen(post=post, direct=False, own_thread=own, person=post.user not in bots, age_ms=0)
        taken = admission.decide(seen, self.rules, Names())
        if not isinstance(taken, Taken):
            return []
        self.threads.add(post.thread)
        return [one.message for one in taken.outgoing] or ["@bot @second !approve 7 !stop"]


@given(
    st.lists(st.sampled_from(["@bot begin", "@second begin", "@bot @second both", "!approve 7", "go on"]), max_size=4),
    st.booleans(),
)
def test_bots_that_answer_each_other_come_to_an_end(said: list[str], signed: bool) -> None:
    """`signed`: the server marks what bots post. Where it would not, their accounts still are bots'."""
    everybody = frozenset({OWNER, BOT, SECOND})
    bots = [Gateway(BOT, "bot", everybody), Gateway(SECOND, "second", everybody)]
    root = an_id("root")
    waiting = [(OWNER, text) for text in said]
    posted = 0
    while waiting:
        author, text = waiting.pop(0)
        posted += 1
        assert posted <= len(said) * (1 + len(bots)), "they keep each other going"
        props = {"from_bot": "true"} if signed and author != OWNER else {}
        post = Post(
            id=an_id("post", posted), user=author, channel=TOWN, root=root, type="", message=text, props=props, files=0,
            create_at=BEGIN, edit_at=Timestamp(0), delete_at=Timestamp(0), original="",
        )  # fmt: skip
        for bot in bots:
            waiting += [(bot.me, answer) for answer in bot.answers(post, {BOT, SECOND})]
