"""Whether another Boxmaker speaks with the same bot, so that each post is answered, and each call made, twice.

What shows it is a post of the bot that has a key of ours and that this queue did not make: a key is in the queue before
its post is asked for. Not judged is what the queue cannot know: posts from before it began, and some time after, since
the server's clock may be ahead; those that are so old that it may have forgotten them; and questions and what the
owner's socket posts, whose keys are kept elsewhere or nowhere. Reads: the queue. Tells: Part.ACCOUNT of the condition.
Threads: one.
"""

from bxcore import logs
from bxcore.deadline import Clock
from bxcore.errors import ConfigError
from gatewayd import oldposts
from gatewayd.condition import Condition, Part
from gatewayd.posts import KEY_PROP, Post
from gatewayd.store import KEPT_MS, Store

NOT_KEPT = ("question:", "owner:")
"""How the keys begin of posts that are not made from the queue."""
BEGUN_MS = 600_000
"""So long after the queue began nothing is judged."""
WELL_MS = 3_600_000
"""So long after the last such post it is taken for mended."""

log = logs.get("sharedbot")


class BotShared(ConfigError):
    """Another Boxmaker uses this bot."""

    code = "bot_shared"


class SharedBot:
    """Looks at posts of the bot's own account; `bot` is no argument since whoever calls has seen whose they are."""

    def __init__(self, store: Store, condition: Condition, clock: Clock) -> None:
        self._store, self._condition, self._clock = store, condition, clock
        self._seen_ms: int | None = None

    def seen(self, post: Post) -> None:
        """A post of the bot's account was met. Raises StateError."""
        if not self._is_foreign(post):
            return
        log.warning("a post of our bot is not ours post=%s channel=%s code=bot_shared", post.id, post.channel)
        self._seen_ms = self._clock.monotonic_ms()
        at = oldposts.clock_time(post.create_at)
        detail = f"a post of {at} (UTC) with this bot's name is not of this Boxmaker: another one has the same token"
        self._condition.trouble(Part.ACCOUNT, BotShared(detail))

    def look(self) -> None:
        """Take the trouble back where no such post has come for long enough."""
        if self._seen_ms is not None and self._clock.monotonic_ms() - self._seen_ms >= WELL_MS:
            self._seen_ms = None
            self._condition.well(Part.ACCOUNT)

    def _is_foreign(self, post: Post) -> bool:
        key = post.props.get(KEY_PROP)
        if not key or key.startswith(NOT_KEPT):
            return False
        earliest = max(self._store.began() + BEGUN_MS, self._clock.now_ms() - KEPT_MS // 2)
        return post.create_at >= earliest and not self._store.may_have_made(key, post.id)
