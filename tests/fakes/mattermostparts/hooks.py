"""Incoming webhooks: how anybody who holds an address posts as the person who made it."""

from collections.abc import Iterable

from tests.fakes.mattermostparts.calls import Answer, Call, Row, row
from tests.fakes.mattermostparts.posting import Posting
from tests.fakes.mattermostparts.records import AppError, Json
from tests.fakes.mattermostparts.world import World


class Hooks:
    """Handlers; each is called with the world's lock held."""

    def __init__(self, world: World, posting: Posting) -> None:
        self._world = world
        self._posting = posting
        self._hooks: dict[str, Json] = {}

    def rows(self) -> Iterable[Row]:
        return (row("POST /hooks/incoming", self.create),)

    def create(self, call: Call) -> Answer:
        asked = call.object()
        channel = self._world.channels.get(str(asked.get("channel_id", "")))
        if channel is None or call.user.id not in channel.members:
            raise AppError("api.context.permissions.app_error", 403)
        if not channel.team:
            raise AppError("api.incoming_webhook.invalid_channel.app_error", 400)
        made = self._world.now()
        hook: Json = {
            "id": self._world.new_id(),
            "create_at": made,
            "update_at": made,
            "delete_at": 0,
            "user_id": call.user.id,
            "channel_id": channel.id,
            "team_id": channel.team,
            "display_name": str(asked.get("display_name", "")),
            "description": "",
            "username": "",
            "icon_url": "",
            "channel_locked": False,
        }
        self._hooks[hook["id"]] = hook
        return Answer(status=201, json=hook)

    def said(self, call: Call) -> Answer:
        """Post what came to a hook's address, in parts where it is long: the author is who made the hook."""
        hook = self._hooks.get(call.path)
        if hook is None:
            raise AppError("web.incoming_webhook.invalid.app_error", 400)
        text = str(call.object().get("text") or "")
        if not text:
            raise AppError("web.incoming_webhook.text.app_error", 400)
        size = int(self._world.config["MaxPostSize"])
        props = {"from_webhook": "true", "webhook_display_name": hook["display_name"]}
        author = self._world.users[hook["user_id"]]
        for start in range(0, len(text), size):
            part = {"channel_id": hook["channel_id"], "message": text[start : start + size], "props": props}
            self._posting.create(author, part, internal=True)
        return Answer(text="ok", headers=[("Content-Type", "text/plain")])
