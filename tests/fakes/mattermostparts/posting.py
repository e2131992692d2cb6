"""What can be done with posts, by the server's rules: create, patch, delete, and the four ways to read them.

Everything here holds the world's lock while it reads or changes, and publishes its events inside it.
"""

import bisect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.fakes.mattermostparts import rules
from tests.fakes.mattermostparts.records import AppError, Channel, Json, Post, User
from tests.fakes.mattermostparts.world import Event, Notified, Typing, World

PENDING_MS = 30_000
SINCE_LIMIT = 1_000
_NOT_FOUND = "app.post.get.app_error"


class Posting:
    """The posts of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    # --- create ---

    def create(
        self,
        author: User,
        untrusted: Mapping[str, Any],
        *,
        set_online: bool = True,
        may_date: bool = False,
        internal: bool = False,
    ) -> Json:
        """Do what POST /posts does, or (`internal`) what the server may say itself. Raises AppError."""
        world = self._world
        with world.lock:
            channel = self._channel_for(author, untrusted, internal=internal)
            pending = str(untrusted.get("pending_post_id") or "")
            if (first := self._duplicate(pending)) is not None:
                return self.json(first)
            if pending:
                world.pending[pending] = ("", world.now())
            try:
                post = self._checked(author, channel, untrusted, may_date=may_date)
            except AppError:
                world.pending.pop(pending, None)
                raise
            if pending:
                world.pending[pending] = (post.id, world.now())
            self._save(post, channel)
            self._announce(post, channel, author, pending=pending, set_online=set_online)
            return self.json(post, pending=pending)

    @contextmanager
    def busy_with(self, body: bytes) -> Iterator[None]:
        """Be as the server is while a POST /posts with this body takes its time."""
        try:
            untrusted = json.loads(body or b"{}")
        except ValueError:
            untrusted = None
        pending = str(untrusted.get("pending_post_id") or "") if isinstance(untrusted, dict) else ""
        with self._world.lock:
            mark = bool(pending) and pending not in self._world.pending
            if mark:
                self._world.pending[pending] = ("", self._world.now())
        yield
        with self._world.lock:
            if mark and self._world.pending.get(pending, ("", 0))[0] == "":
                self._world.pending.pop(pending, None)

    def _channel_for(self, author: User, untrusted: Mapping[str, Any], *, internal: bool) -> Channel:
        channel = self._world.channels.get(str(untrusted.get("channel_id", "")))
        if channel is None or not (author.id in channel.members or author.admin or internal):
            raise AppError("api.context.permissions.app_error", 403)
        if internal:
            return channel
        if str(untrusted.get("type") or "").startswith("system_"):
            raise AppError("api.context.invalid_param.app_error", 400)
        if channel.delete_at:
            raise AppError("api.post.create_post.can_not_post_to_deleted.error", 400)
        if channel.type == "D" and self._is_restricted(channel):
            raise AppError("api.post.create_post.can_not_post_in_restricted_dm.error", 400)
        return channel

    def _is_restricted(self, channel: Channel) -> bool:
        world = self._world
        if world.config["RestrictDirectMessage"] != "team" or any(
            world.users[member].is_bot for member in channel.members
        ):
            return False
        return not any(channel.members.keys() <= team.members for team in world.teams.values())

    def _duplicate(self, pending: str) -> Post | None:
        if not pending or not self._world.keeps("pending"):
            return None
        made, since = self._world.pending.get(pending, ("", 0))
        if pending not in self._world.pending or self._world.now() - since >= PENDING_MS:
            return None
        if made == "":  # the first one is still running
            raise AppError("api.post.deduplicate_create_post.pending", 500)
        post = self._world.posts[made]
        if post.delete_at:
            raise AppError("api.post.deduplicate_create_post.failed_to_get", 500)
        return post

    def _checked(self, author: User, channel: Channel, untrusted: Mapping[str, Any], *, may_date: bool) -> Post:
        props = untrusted.get("props")
        message = untrusted.get("message", "")
        if not isinstance(message, str) or not (props is None or isinstance(props, dict)):
            raise AppError("api.context.invalid_body_param.app_error", 400)
        root = str(untrusted.get("root_id") or "")
        self._check_root(root, channel)
        self._check_length(message)
        now = self._world.now()
        create_at = int(untrusted.get("create_at") or 0) if may_date else 0
        # What only the server may say cannot be brought along; from_webhook and the like are kept as they came.
        said = {name: value for name, value in (props or {}).items() if name != "add_channel_member"}
        if author.is_bot:
            said["from_bot"] = "true"
        if len(rules.dump(said)) > 800_000:
            raise AppError("model.post.is_valid.props.app_error", 400)
        files = untrusted.get("file_ids")
        return Post(
            id=self._world.new_id(),
            create_at=create_at or now,
            update_at=create_at or now,
            user=author.id,
            channel=channel.id,
            root=root,
            message=message,
            type=str(untrusted.get("type") or ""),
            props=said,
            file_ids=[str(file) for file in files] if isinstance(files, list) else [],
            hashtags=rules.hashtags(message),
        )

    def _check_root(self, root: str, channel: Channel) -> None:
        if not root:
            return
        found = self._world.posts.get(root)
        if found is None or found.delete_at:
            raise AppError("api.post.create_post.root_id.app_error", 400)
        if found.channel != channel.id:
            raise AppError("api.post.create_post.channel_root_id.app_error", 400)
        if found.root and self._world.keeps("root"):
            raise AppError("api.post.create_post.root_id.app_error", 400)

    def _check_length(self, message: str) -> None:
        if len(message) > int(self._world.config["MaxPostSize"]) and self._world.keeps("length"):
            raise AppError("model.post.is_valid.message_length.app_error", 400)

    def _save(self, post: Post, channel: Channel) -> None:
        self._keep(post)
        channel.last_post_at = max(channel.last_post_at, post.create_at)
        channel.messages += 1
        if post.root:
            root = self._world.posts[post.root]
            root.update_at = max(root.update_at, post.create_at)
        else:
            channel.last_root_post_at = max(channel.last_root_post_at, post.create_at)
            channel.root_messages += 1

    def _keep(self, post: Post) -> None:
        world = self._world
        world.posts[post.id] = post
        rows = world.in_channel[post.channel]
        # Usually the newest, so that nothing is searched. Equal times have no order of their own: the id decides.
        if rows and _key(rows[-1]) > _key(post):
            bisect.insort(rows, post, key=_key)
        else:
            rows.append(post)
        if post.root:
            world.in_thread.setdefault(post.root, []).append(post)

    def _announce(self, post: Post, channel: Channel, author: User, *, pending: str, set_online: bool) -> None:
        world = self._world
        self._note_fetches(post)
        mentioned = rules.mentions(post.message, world.names)
        named = self._named(post, channel, mentioned)
        followers = self._followers(post)
        # A direct or group message counts as a mention, and so may a reply: the field says nothing of the text.
        told = named | (channel.members.keys() if channel.type in "DG" else set()) | followers
        world.notified.append(Notified(post=post.id, users=frozenset(named), everybody=mentioned.everybody))
        data: Json = {
            "channel_display_name": f"@{author.username}" if channel.type == "D" else channel.display_name,
            "channel_name": channel.name,
            "channel_type": channel.type,
            "post": rules.dump(self.json(post, pending=pending)),
            "sender_name": f"@{author.username}",
            "set_online": set_online,
            "team_id": channel.team,
        }
        if post.file_ids:
            data["otherFile"] = "true"

        def for_receiver(user: str) -> Json:
            if user == post.user or user not in told:
                return {}
            return {
                name: rules.dump([user])
                for name in ("mentions", "followers")
                if name == "mentions" or user in followers
            }

        world.publish(Event(name="posted", data=data, channel=channel.id, personal=for_receiver))

    def _note_fetches(self, post: Post) -> None:
        world = self._world
        previews, site = world.on("EnableLinkPreviews"), world.config["SiteURL"]
        for fetch in rules.fetches(post.message, post.props, previews=previews, site_url=site):
            world.fetches.append(replace(fetch, post=post.id))

    def _named(self, post: Post, channel: Channel, mentioned: rules.Mentioned) -> set[str]:
        named = {self._world.names[name].id for name in mentioned.names} & channel.members.keys()
        if mentioned.everybody:
            named |= channel.members.keys()
        return named - {post.user}

    def _followers(self, post: Post) -> set[str]:
        if not post.root:
            return set()
        thread = (self._world.posts[post.root], *self._world.in_thread.get(post.root, ()))
        return {reply.user for reply in thread} - {post.user}

    # --- patch and delete ---

    def patch(self, editor: User, post_id: str, untrusted: Mapping[str, Any]) -> Json:
        """Do what PUT /posts/{id}/patch does: `props` replaces all, and the old text becomes a post of its own."""
        world = self._world
        with world.lock:
            post = world.posts.get(post_id)
            if post is None or post.delete_at:
                raise AppError("api.context.permissions.app_error", 403)
            channel = world.channels[post.channel]
            if (editor.id != post.user or editor.id not in channel.members) and not editor.admin:
                raise AppError("api.context.permissions.app_error", 403)
            self._check_patch(post, channel, untrusted)
            message, props = untrusted.get("message"), untrusted.get("props")
            old = replace(post, props=dict(post.props), id=world.new_id(), original=post.id, reactions=[])
            now = world.now()
            post.update_at = old.update_at = old.delete_at = now
            if message is not None and message != post.message:
                post.message, post.edit_at = message, now
            if props is not None and world.keeps("patch_props"):
                post.props = {
                    **props,
                    **({"from_bot": "true"} if world.users[post.user].is_bot and "from_bot" in props else {}),
                }
            if untrusted.get("is_pinned") is not None:
                post.pinned = untrusted["is_pinned"] is True
            self._keep(old)
            channel.last_post_at = max(channel.last_post_at, now)  # 11.6 does so, although nothing is newer
            self._touch(post.root, now)
            self._note_fetches(post)
            world.publish(Event(name="post_edited", data={"post": rules.dump(self.json(post))}, channel=channel.id))
            return self.json(post)

    def _check_patch(self, post: Post, channel: Channel, untrusted: Mapping[str, Any]) -> None:
        message, props = untrusted.get("message"), untrusted.get("props")
        if not isinstance(message, str | None) or not isinstance(props, dict | None):
            raise AppError("api.context.invalid_body_param.app_error", 400)
        limit = int(self._world.config["PostEditTimeLimit"])
        if limit != -1 and message is not None and self._world.now() > post.create_at + limit * 1000:
            raise AppError("api.post.update_post.permissions_time_limit.app_error", 400)
        if channel.delete_at:
            raise AppError("api.post.patch_post.can_not_update_post_in_deleted.error", 400)
        if post.type.startswith("system_"):
            raise AppError("api.post.update_post.system_message.app_error", 400)
        self._check_length(message or "")

    def _touch(self, root: str, now: int) -> None:
        if root:
            self._world.posts[root].update_at = now

    def delete(self, by: User, post_id: str) -> None:
        """Do what DELETE /posts/{id} does: the replies of a root go with it, and there is one event."""
        world = self._world
        with world.lock:
            post = self.existing(post_id)
            channel = world.channels[post.channel]
            if (by.id != post.user or by.id not in channel.members) and not by.admin:
                raise AppError("api.context.permissions.app_error", 403)
            if channel.delete_at:
                raise AppError("api.post.delete_post.can_not_delete_post_in_deleted.error", 400)
            before = rules.dump(self.json(post))  # as it was: delete_at is 0
            now = world.now()
            for gone in (post, *world.in_thread.get(post.id, ())):
                gone.delete_at = gone.update_at = now
                gone.props["deleteBy"] = by.id
            self._touch(post.root, now)
            told = {"post": before}
            world.publish(Event(name="post_deleted", data=told, channel=channel.id, admins=False))
            world.publish(
                Event(name="post_deleted", data={**told, "delete_by": by.id}, channel=channel.id, admins=True)
            )

    # --- read ---

    def existing(self, post_id: str) -> Post:
        """Return a post that is not deleted. Raises AppError."""
        post = self._world.posts.get(post_id)
        if post is None or post.delete_at:
            raise AppError(_NOT_FOUND, 404)
        return post

    def json(self, post: Post, *, pending: str = "") -> Json:
        replies = self._world.in_thread.get(post.root or post.id, ())
        alive = [reply.create_at for reply in replies if not reply.delete_at] if replies else []
        # last_reply_at is for readers of collapsed threads alone, and those read otherwise.
        return post.json(reply_count=len(alive), pending=pending)

    def page(self, channel: Channel, *, page: int, per_page: int, with_threads: bool) -> Json:
        """Return the newest first, deleted ones left out; `posts` also has the threads of what is in `order`."""
        rows = self._world.in_channel[channel.id]
        alive = [post for post in reversed(rows) if not post.delete_at]
        start = page * per_page
        chosen = alive[start : start + per_page]
        return self._list(
            chosen,
            self._roots(chosen, with_threads=with_threads),
            next_id=alive[start - 1].id if 0 < start <= len(alive) else "",
            prev_id=alive[start + per_page].id if start + per_page < len(alive) else "",
        )

    def since(self, channel: Channel, time: int) -> Json:
        """Return up to 1000 of what changed, whichever: no order before the limit, deleted and old texts included."""
        rows = self._world.in_channel[channel.id]
        changed = [post for post in rows if post.update_at > time][:SINCE_LIMIT]
        roots = [self._world.posts[post.root] for post in changed if post.root]
        everything = {post.id: post for post in (*changed, *roots)}
        ordered = sorted(everything.values(), key=_key, reverse=True)
        return self._list([post for post in ordered if post.update_at > time], ordered)

    def around(
        self, channel: Channel, anchor: str, *, after: bool, page: int, per_page: int, with_threads: bool
    ) -> Json:
        """Return what is strictly older or younger than a post: not what has the same millisecond."""
        rows = [post for post in self._world.in_channel[channel.id] if not post.delete_at]
        found = self._world.posts.get(anchor)
        at = found.create_at if found is not None else 0
        if after:
            chosen = [post for post in rows if post.create_at > at and found is not None]
        else:
            chosen = [post for post in reversed(rows) if post.create_at < at]
        chosen = chosen[page * per_page : (page + 1) * per_page]
        if after:
            chosen.reverse()
        return self._list(chosen, self._roots(chosen, with_threads=with_threads))

    def _roots(self, chosen: Iterable[Post], *, with_threads: bool) -> list[Post]:
        roots = dict.fromkeys(post.root or post.id for post in chosen)
        found = [self._world.posts[root] for root in roots]
        for root in roots if with_threads else ():
            found.extend(self._world.in_thread.get(root, ()))
        return [post for post in found if not post.delete_at]

    def thread(self, post_id: str, query: Mapping[str, str]) -> Json:
        """Return a thread: the asked post first, then the others, in an order where `direction` says one."""
        post = self.existing(post_id)
        root = post.root or post.id
        rows = [
            found for found in (self._world.posts[root], *self._world.in_thread.get(root, ())) if not found.delete_at
        ]
        direction = query.get("direction", "")
        rows.sort(key=_key if direction else lambda found: found.id, reverse=direction == "up")
        rows = [found for found in rows if _is_beyond(found, query)]
        limit = int(query.get("perPage") or 0)
        has_next = bool(limit) and len(rows) > limit
        rows = [post] + [found for found in (rows[:limit] if limit else rows) if found.id != post_id]
        return {**self._list(rows, ()), "has_next": has_next}

    def _list(self, order: Iterable[Post], more: Iterable[Post], *, next_id: str = "", prev_id: str = "") -> Json:
        ordered = list(order)
        return {
            "order": [post.id for post in ordered],
            "posts": {post.id: self.json(post) for post in (*more, *ordered)},
            "next_post_id": next_id,
            "prev_post_id": prev_id,
            "first_inaccessible_post_time": 0,
        }

    # --- typing ---

    def typing(self, user: User, channel: str, parent: str) -> None:
        """Show somebody as typing. Raises AppError."""
        world = self._world
        with world.lock:
            found = world.channels.get(channel)
            if found is None or user.id not in found.members:
                raise AppError("api.context.permissions.app_error", 403)
            world.typings.append(Typing(user=user.id, channel=channel, parent=parent, at=world.now()))
            data = {"parent_id": parent, "user_id": user.id}
            world.publish(Event(name="typing", data=data, channel=channel, omit=(user.id,)))


def _key(post: Post) -> tuple[int, str]:
    return post.create_at, post.id


def _is_beyond(post: Post, query: Mapping[str, str]) -> bool:
    """Whether a post is on the asked side of fromCreateAt (and fromPost, within one millisecond)."""
    start = int(query.get("fromCreateAt") or 0)
    if not start:
        return True
    anchor = query.get("fromPost", "")
    if query.get("direction") == "down":
        return post.create_at > start or (bool(anchor) and post.create_at == start and post.id > anchor)
    return post.create_at < start or (bool(anchor) and post.create_at == start and post.id < anchor)
