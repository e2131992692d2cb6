"""Who may speak, and what a post becomes: a decision from values alone. Pure.

A post is heard where a person wrote it as it stands: of type "", with no sign of an integration in its props, not
edited, by somebody on a list, whose account is no bot's. That the author's id is on the list is not enough: webhooks
and slash commands post under the id of the person who made them, and a list may hold a bot's id by mistake. So no
post of a bot starts anything, and two bots cannot keep each other going.
"""

from enum import Enum

import attrs

from bxcore.ids import MattermostId
from bxcore.settings.gatewayd import GatewaydSettings
from gatewayd import addressing, commands
from gatewayd.addressing import Names
from gatewayd.commands import Approve, Deny, Malformed
from gatewayd.entries import Incoming, Kind, Outgoing, State, Taken
from gatewayd.posts import INTEGRATION_PROPS, Account, Channel, ChannelType, Post

LISTED_CHARACTERS = 400
"""So much of a post that is only listed is kept."""

FILES_ONLY = "I cannot read attached files. Please say in words what you want."
NOTHING_SAID = "Yes? Please write behind my name what you want."
NOT_AN_APPROVER = "You are not among those who may answer this question."


@attrs.frozen(kw_only=True)
class Rules:
    """The lists of the settings, and who the bot is."""

    bot: MattermostId
    bot_name: str
    users: frozenset[str]
    approvers: frozenset[str]
    channels: frozenset[str]
    stale_ms: int

    @classmethod
    def of(cls, settings: GatewaydSettings, bot: Account) -> "Rules":
        return cls(
            bot=bot.id,
            bot_name=bot.username,
            users=frozenset(settings.allow.users),
            approvers=frozenset(settings.approvers),
            channels=frozenset(settings.allow.channels),
            stale_ms=settings.limits.stale_ms,
        )


class Why(Enum):
    """Why a post is nothing to us."""

    OWN = "own"
    TYPE = "type"
    INTEGRATION = "integration"
    GONE = "gone"
    PLACE = "place"
    STRANGER = "stranger"
    BOT = "bot"
    OTHERS = "others"


@attrs.frozen(kw_only=True)
class Ignored:
    """Nothing becomes of the post."""

    why: Why


@attrs.frozen(kw_only=True)
class Seen:
    """A post and what was found out about it. `person`: its author is no bot's account.

    `age_ms`: of a post that was missed by the server's clock, of an event since it came, whatever its post's date.
    """

    post: Post
    direct: bool
    own_thread: bool
    person: bool
    age_ms: int


def is_read(channel: Channel, rules: Rules) -> bool:
    """Say whether anything in this channel can be for us."""
    if channel.type is not ChannelType.DIRECT:
        return channel.id in rules.channels
    return any(user in rules.users or user in rules.approvers for user in channel.name.split("__"))


def refused(post: Post, *, direct: bool, rules: Rules) -> Why | None:
    """Say why a post is nothing to us, as far as that shows without asking anybody. None: see `decide`."""
    if post.user == rules.bot:
        return Why.OWN
    if post.type != "":
        return Why.TYPE
    if any(name in post.props for name in INTEGRATION_PROPS):
        return Why.INTEGRATION
    if post.delete_at != 0 or post.original != "":
        return Why.GONE
    if not direct and post.channel not in rules.channels:
        return Why.PLACE
    if post.user in rules.users:
        return None
    answers = _is_answer(commands.parse(addressing.strip_mention(post.message, rules.bot_name)))
    # Whoever else answers a question where others can read it is told that it does not count.
    return None if answers and (post.user in rules.approvers or not direct) else Why.STRANGER


def decide(seen: Seen, rules: Rules, names: Names) -> Taken | Ignored:
    """Return what becomes of a post. Raises what `names` raises, and nothing else."""
    post = seen.post
    why = refused(post, direct=seen.direct, rules=rules)
    if why is not None:
        return Ignored(why=why)
    if not seen.person:
        return Ignored(why=Why.BOT)
    bot = rules.bot_name
    if not addressing.for_us(post.message, bot=bot, direct=seen.direct, own_thread=seen.own_thread, names=names):
        return Ignored(why=Why.OTHERS)
    command = commands.parse(addressing.strip_mention(post.message, bot))
    if post.user not in rules.users and post.user not in rules.approvers:
        return _stranger(seen, exact=isinstance(command, Approve | Deny))
    if post.user not in rules.users and not _is_answer(command):
        return Ignored(why=Why.STRANGER)
    incoming = _incoming(seen, bot, Kind.MESSAGE if command is None else Kind.COMMAND)
    if post.edit_at != 0 or seen.age_ms > rules.stale_ms:
        cut = attrs.evolve(incoming, text=incoming.text[:LISTED_CHARACTERS])
        return Taken(post=cut, state=State.OLD, edited=post.edit_at != 0)
    if command is None and not _words(post, bot):
        return _answered(incoming, f"answer-{post.id}", FILES_ONLY if post.files else NOTHING_SAID)
    return Taken(post=incoming)


def text_of(post: Post, bot_name: str) -> str:
    """Return what is kept of a post's text: a command as it was written, a message as the model will read it."""
    stripped = addressing.strip_mention(post.message, bot_name)
    if commands.parse(stripped) is not None:
        return stripped
    text = commands.message_text(stripped)
    if not post.files:
        return text
    files = "1 attached file" if post.files == 1 else f"{post.files} attached files"
    return f"{text}\n\n[This post had {files}, which cannot be read here.]"


def _words(post: Post, bot_name: str) -> bool:
    return bool(addressing.strip_mention(post.message, bot_name).strip())


def _is_answer(command: commands.Command | None) -> bool:
    return isinstance(command, Approve | Deny) or (
        isinstance(command, Malformed) and command.word in ("approve", "deny")
    )


def _incoming(seen: Seen, bot_name: str, kind: Kind) -> Incoming:
    post = seen.post
    return Incoming(
        id=post.id,
        channel=post.channel,
        thread=post.thread,
        user=post.user,
        create_at=post.create_at,
        kind=kind,
        direct=seen.direct,
        text=text_of(post, bot_name),
    )


def _answered(incoming: Incoming, key: str, text: str) -> Taken:
    answer = Outgoing(key=key, channel=incoming.channel, root=incoming.thread, message=text)
    return Taken(post=incoming, state=State.DONE, outgoing=(answer,))


def _stranger(seen: Seen, *, exact: bool) -> Taken | Ignored:
    """Refuse a stranger's answer to a question, once for each stranger and thread: no two programs go on for ever."""
    if seen.direct or not seen.own_thread or not exact:
        return Ignored(why=Why.STRANGER)
    incoming = attrs.evolve(_incoming(seen, "", Kind.COMMAND), text="")
    return _answered(incoming, f"stranger-{incoming.thread}-{incoming.user}", NOT_AN_APPROVER)
