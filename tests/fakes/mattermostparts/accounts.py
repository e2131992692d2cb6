"""The calls about people: users, logins, bots and their tokens, teams. With them a suite can set up a real server."""

import hashlib
from collections.abc import Iterable

from tests.fakes.mattermostparts.calls import Answer, Call, Row, row
from tests.fakes.mattermostparts.posting import Posting
from tests.fakes.mattermostparts.records import AppError, Json, User
from tests.fakes.mattermostparts.world import World

_OK = {"status": "OK"}
_DENIED = "api.context.permissions.app_error"


class Accounts:
    """Handlers; each is called with the world's lock held."""

    def __init__(self, world: World, posting: Posting) -> None:
        self._world = world
        self._posting = posting

    def rows(self) -> Iterable[Row]:
        return (
            row("GET /system/ping", self.ping, public=True),
            row("POST /users", self.create_user, public=True),
            row("POST /users/login", self.login, public=True),
            row("POST /users/logout", self.logout, public=True),
            row("POST /users/ids", self.by_ids),
            row("POST /users/usernames", self.by_names),
            row("POST /users/tokens/revoke", self.revoke_token),
            row("GET /users", self.list_users),
            row("GET /users/username/{name}", self.by_name),
            row("GET /users/{user}", self.get_user),
            row("PUT /users/{user}/active", self.set_active),
            row("POST /users/{user}/tokens", self.create_token),
            row("GET /users/{user}/teams", self.my_teams),
            row("POST /bots", self.create_bot_call),
            row("GET /bots/{user}", self.get_bot),
            row("POST /bots/{user}/disable", self.disable_bot),
            row("POST /bots/{user}/enable", self.enable_bot),
            row("POST /teams", self.create_team),
            row("GET /teams/name/{name}", self.team_by_name),
            row("POST /teams/{team}/members", self.add_to_team),
            row("GET /config/client", self.config, public=True),
        )

    def ping(self, _: Call) -> Answer:
        return Answer(json={"ActiveSearchBackend": "database", "AndroidLatestVersion": "", **_OK})

    def config(self, call: Call) -> Answer:
        """Return the settings that a client is told, all of them text; a few where nobody is logged in."""
        known = self._world.config
        if call.who is None:
            return Answer(json={name: value for name, value in known.items() if name.startswith(_ALWAYS_TOLD)})
        return Answer(json={name: value for name, value in known.items() if name not in _NEVER_TOLD})

    # --- users ---

    def create_user(self, call: Call) -> Answer:
        asked = call.object()
        if self._world.users and not self._world.on("EnableOpenServer") and not (call.who and call.who.admin):
            raise AppError("api.user.create_user.no_open_server", 403)
        email, password = str(asked.get("email", "")), str(asked.get("password", ""))
        if "@" not in email:
            raise AppError("model.user.is_valid.email.app_error", 400)
        if len(password) < 8:
            raise AppError("model.user.is_valid.pwd_min_length.app_error", 400)
        if any(user.email == email for user in self._world.users.values()):
            raise AppError("app.user.save.email_exists.app_error", 400)
        user = self._world.add_user(str(asked.get("username", "")), email=email, password=password)
        return Answer(status=201, json=user.json())

    def login(self, call: Call) -> Answer:
        asked = call.object()
        name = str(asked.get("login_id", "")).lower()
        found = [user for user in self._world.users.values() if name in (user.username, user.email)]
        if found and found[0].is_bot:
            raise AppError("api.user.login.bot_login_forbidden.app_error", 401)
        if not found or not found[0].password or found[0].password != asked.get("password"):
            raise AppError("api.user.login.invalid_credentials_email_username", 401)
        if found[0].delete_at:
            raise AppError("api.user.login.inactive.app_error", 401)
        session = self._world.add_session(found[0].id)
        headers = [("Token", session.token)]
        if call.headers.get("x-requested-with") == "XMLHttpRequest":
            headers.append(("Set-Cookie", f"MMAUTHTOKEN={session.token}; Path=/; HttpOnly"))
            headers.append(("Set-Cookie", f"MMUSERID={found[0].id}; Path=/"))
            headers.append(("Set-Cookie", f"MMCSRF={session.csrf}; Path=/"))
        return Answer(json=found[0].json(), headers=headers)

    def logout(self, call: Call) -> Answer:
        if call.session is not None:
            self._world.sessions.pop(call.session.token, None)
        return Answer(json=_OK, headers=[("Set-Cookie", "MMAUTHTOKEN=; Path=/; Max-Age=0; HttpOnly")])

    def _existing(self, user_id: str) -> User:
        user = self._world.users.get(user_id)
        if user is None:
            raise AppError("app.user.missing_account.const", 404)
        return user

    def get_user(self, call: Call) -> Answer:
        return Answer(json=self._existing(call.named_user).json())

    def by_name(self, call: Call) -> Answer:
        user = self._world.names.get(call.names["name"].lower())
        if user is None:
            raise AppError("app.user.get_by_username.app_error", 404)
        return Answer(json=user.json())

    def by_ids(self, call: Call) -> Answer:
        wanted = call.strings()
        known = self._world.users
        if not wanted:
            raise AppError("api.context.invalid_body_param.app_error", 400)
        return Answer(json=[known[each].json() for each in dict.fromkeys(wanted) if each in known])

    def by_names(self, call: Call) -> Answer:
        """Return those that exist. Names are kept in lower case, and compared as they are."""
        names = call.strings()
        if not names:
            raise AppError("api.context.invalid_body_param.app_error", 400)
        return Answer(
            json=[self._world.names[name].json() for name in dict.fromkeys(names) if name in self._world.names]
        )

    def list_users(self, call: Call) -> Answer:
        page, per_page = call.paging()
        users = sorted(self._world.users.values(), key=lambda user: user.username)
        return Answer(json=[user.json() for user in users[page * per_page : (page + 1) * per_page]])

    def set_active(self, call: Call) -> Answer:
        self._admin_or(call, call.named_user)
        self._world.set_active(self._existing(call.named_user), active=call.object().get("active") is True)
        return Answer(json=_OK)

    # --- tokens and bots ---

    def create_token(self, call: Call) -> Answer:
        user = self._existing(call.named_user)
        self._admin_or(call, user.owner or user.id)
        if not self._world.on("EnableUserAccessTokens") and not user.is_bot:
            raise AppError("app.user_access_token.disabled", 501)
        description = str(call.object().get("description") or "")
        if not description:
            raise AppError("api.context.invalid_body_param.app_error", 400)
        session = self._world.add_session(user.id, personal=True)
        made = {"id": session.token_id, "token": session.token, "user_id": user.id}
        return Answer(status=200, json={**made, "description": description, "is_active": True})

    def revoke_token(self, call: Call) -> Answer:
        asked = call.object().get("token_id")
        found = [session for session in self._world.sessions.values() if session.personal and session.token_id == asked]
        if not found:
            raise AppError("app.user_access_token.get_by_user.app_error", 404)
        self._admin_or(call, self._world.users[found[0].user].owner or found[0].user)
        del self._world.sessions[found[0].token]
        return Answer(json=_OK)

    def create_bot_call(self, call: Call) -> Answer:
        if not self._world.on("EnableBotAccountCreation"):
            raise AppError("api.bot.create_disabled", 403)
        if call.user.is_bot:
            raise AppError(_DENIED, 403)
        asked = call.object()
        bot = self.create_bot(
            call.user,
            str(asked.get("username", "")),
            str(asked.get("display_name", "")),
            str(asked.get("description", "")),
        )
        return Answer(status=201, json=bot.bot_json())

    def create_bot(self, owner: User, username: str, display_name: str = "", description: str = "") -> User:
        """Make a bot, and the direct channel in which it greets whoever made it."""
        bot = self._world.add_user(username, bot=True, owner=owner.id, email=f"{username.lower()}@localhost")
        bot.display_name, bot.description = display_name, description
        channel, _ = self._world.direct(bot.id, owner.id)
        greeting: Json = {
            "channel_id": channel.id,
            "type": "add_bot_teams_channels",
            "message": "Please add me to teams.",
        }
        self._posting.create(bot, greeting)
        return bot

    def _existing_bot(self, call: Call) -> User:
        bot = self._world.users.get(call.names["user"])
        if bot is None or not bot.is_bot:
            raise AppError("store.sql_bot.get.missing.app_error", 404)
        self._admin_or(call, bot.owner)
        return bot

    def get_bot(self, call: Call) -> Answer:
        return Answer(json=self._existing_bot(call).bot_json())

    def disable_bot(self, call: Call) -> Answer:
        bot = self._existing_bot(call)
        self._world.set_active(bot, active=False)
        return Answer(json=bot.bot_json())

    def enable_bot(self, call: Call) -> Answer:
        bot = self._existing_bot(call)
        self._world.set_active(bot, active=True)
        return Answer(json=bot.bot_json())

    def _admin_or(self, call: Call, user: str) -> None:
        if not call.user.admin and call.user.id != user:
            raise AppError(_DENIED, 403)

    # --- teams ---

    def create_team(self, call: Call) -> Answer:
        asked = call.object()
        if asked.get("type") not in ("O", "I") or not asked.get("name") or not asked.get("display_name"):
            raise AppError("model.team.is_valid.type.app_error", 400)
        team = self._world.add_team(
            asked["name"], display_name=asked["display_name"], kind=asked["type"], creator=call.user.id
        )
        return Answer(status=201, json=team.json())

    def team_by_name(self, call: Call) -> Answer:
        found = [team for team in self._world.teams.values() if team.name == call.names["name"]]
        if not found:
            raise AppError("app.team.get_by_name.missing.app_error", 404)
        return Answer(json=found[0].json())

    def my_teams(self, call: Call) -> Answer:
        teams = self._world.teams.values()
        return Answer(json=[team.json() for team in teams if call.named_user in team.members])

    def add_to_team(self, call: Call) -> Answer:
        team = self._world.teams.get(call.names["team"])
        user = self._existing(str(call.object().get("user_id", "")))
        if team is None:
            raise AppError("app.team.get.find.app_error", 404)
        if not call.user.admin and call.user.id not in team.members:
            raise AppError(_DENIED, 403)
        team.members.add(user.id)
        member = {"team_id": team.id, "user_id": user.id, "roles": "team_user", "delete_at": 0}
        return Answer(status=201, json={**member, "scheme_user": True, "scheme_admin": False, "explicit_roles": ""})


_ALWAYS_TOLD = ("SiteURL", "Version", "Build", "EnableOpenServer")
_NEVER_TOLD = frozenset({"MaximumPayloadSizeBytes", "ExperimentalEnableHardenedMode", "EnableBotAccountCreation"})


def request_id(number: int) -> str:
    """Return the X-Request-Id of a request."""
    return hashlib.sha256(f"request {number}".encode()).hexdigest()[:26]
