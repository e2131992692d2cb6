"""`bxctl chat`: a conversation at the terminal.

A session begins with its first message. Lines that begin with a slash and a word are for bxctl,
not for the model. While a turn runs, keys are kept for the next prompt; Ctrl-C cancels.
"""

import os
import re
import sys

import attrs

from bxcore.errors import BoxmakerError
from bxcore.ids import SessionId
from bxcore.wire import channel
from bxctl import chat_terminal, loopport, message, render, transcript
from bxctl.events import TurnView, Wishes
from bxctl.exits import Exit
from bxctl.question import Questioner
from bxctl.render import Ink
from bxctl.turns import LEAVE_WITHIN_MS, Leave, TurnRun
from bxctl.world import World

HELP = """\
  /new             begin a new session with the next message
  /session         say which session this is
  /session ID      go on with another one (bxctl sessions list)
  /cancel          stop a turn that another program started in this session
  /quit            leave; Ctrl-D does the same
  //text           send a message that begins with a slash
  Enter sends. Alt-Enter, or \\ at the end of a line, begins another line. A pasted text is one message.
  Ctrl-C cancels the answer that is coming, or clears the line; twice leaves.
  What stands in [brackets] after a message is its entry in docs/runbook.md."""

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(\S+))?\s*|/")


@attrs.frozen(kw_only=True)
class Options:
    """How the owner wants the conversation."""

    session: str | None
    wishes: Wishes
    wait_ms: int
    come_back: str | None = None
    """What to type to go on later, where that is not bxctl itself; "{session}" in it stands for the session."""


def run(world: World, options: Options) -> int:
    """Talk until the owner leaves; return the exit code."""
    named = message.session(options.session) if options.session else None
    status = loopport.wait_visibly(world.port, world.screen, world.clock, wait_ms=options.wait_ms, pause=world.pause)
    chat = Chat(world, options)
    chat.greet(status)
    chat.begin(named)
    return chat.talk()


class Chat:
    """One conversation: which session it is in, and the loop around its prompt."""

    def __init__(self, world: World, options: Options) -> None:
        self._world = world
        self._screen = world.screen
        self._options = options
        self._session: SessionId | None = None
        readline = chat_terminal.find_readline(os.environ)
        self._has_paste = readline is not None
        path = world.home.history
        history = chat_terminal.History(path, self._complain, make_folder=path.parent != world.home.path)
        self._editor = chat_terminal.Editor(readline, history)
        self._pressed_ms: int | None = None

    def greet(self, status: channel.LoopStatusReport) -> None:
        """Say who listens."""
        model = (status.model or "a model without a name").rsplit("/", 1)[-1]
        words = (
            f"Boxmaker: {render.safe_line(model)}, {render.count(status.n_ctx)} tokens of context. /help tells more."
        )
        self._screen.say(words, Ink.DIM)

    def begin(self, named: SessionId | None) -> None:
        """Go on with the session that was named, or say that a new one begins. Raises RemoteFault."""
        if named is None:
            self._screen.say("This is a new session.", Ink.DIM)
        else:
            self.resume(named)

    def resume(self, session: SessionId) -> None:
        """Go on with `session`, and show where it stopped. Raises RemoteFault where there is none."""
        last = list(transcript.tail(self._world.port.ask(channel.SessionShow(session=session)), self._screen))
        self._screen.say(f"This is session {session}.", Ink.DIM)
        for text, ink in last:
            self._screen.line(text, *((ink,) if ink else ()))
        self._session = session

    def talk(self) -> int:
        """Ask, answer, and again."""
        while True:
            try:
                text = self._editor.ask("you> ", "...> ")
                if not self._handle(text):
                    break
                self._pressed_ms = None
            except EOFError:
                self._screen.write("\n")
                break
            except Leave:
                chat_terminal.forget_keys(sys.stdin.fileno())
                break
            except SystemExit:  # SIGTERM, SIGHUP
                chat_terminal.forget_keys(sys.stdin.fileno())
                raise
            except KeyboardInterrupt:
                self._screen.write("\n")
                if self._twice(cleared=bool(self._editor.interrupted_text())):
                    break
                self._screen.say("(Ctrl-C again leaves)", Ink.DIM)
        if self._session:
            # One line, however long: broken at a space it could not be copied as one command.
            command = self._options.come_back or self._world.home.command("chat --session {session}")
            self._screen.line(f"To go on: {command.replace('{session}', self._session)}", Ink.DIM)
        return Exit.OK

    def _twice(self, *, cleared: bool) -> bool:
        # A line that was there to clear was typed after the key before: that one is forgotten.
        now_ms = self._world.clock.monotonic_ms()
        before_ms, self._pressed_ms = self._pressed_ms, now_ms
        return not cleared and before_ms is not None and now_ms - before_ms <= LEAVE_WITHIN_MS

    def _handle(self, text: str) -> bool:
        """Do what `text` asks for; False leaves."""
        if not text.strip():
            return True
        self._editor.remember(text)
        if command := _COMMAND.fullmatch(text):
            return self._command(command[1] or "help", command[2])
        try:
            self._say(message.checked(text[1:] if text.startswith("//") else text))
        except BoxmakerError as error:
            self._complain(str(error))
        return True

    def _say(self, text: str) -> None:
        session = self._session or message.new_session(self._world.clock)
        view = TurnView(answer=self._screen, aside=self._screen, clock=self._world.clock, wishes=self._options.wishes)
        turn = TurnRun(
            self._world.port,
            view,
            self._world.clock,
            session=session,
            new=self._session is None,
            wait_ms=self._options.wait_ms,
            ask=Questioner(self._world.admin, self._screen, self._world.home).ask,
        )
        keyboard = sys.stdin.fileno()
        with chat_terminal.keys_held(keyboard, self._screen.control, paste=self._has_paste):
            try:
                turn.run(text)
            finally:
                if turn.accepted:
                    self._session = session
                self._screen.erase()
                self._screen.fresh_line()
                self._screen.write("\n")

    # -- commands ----------------------------------------------------------------------------------

    def _command(self, name: str, argument: str | None) -> bool:
        try:
            match name, argument:
                case "quit", None:
                    return False
                case "help", None:
                    self._screen.say(HELP)
                case "new", None:
                    self._session = None
                    self._screen.say("The next message begins a new session.", Ink.DIM)
                case "session", None:
                    self._screen.say(f"Session {self._session}" if self._session else "No session yet.", Ink.DIM)
                case "session", str():
                    self.resume(message.session(argument))
                case "cancel", None:
                    self._cancel()
                case _:
                    self._complain(f"there is no command like that: /{name}; /help lists them, // sends a slash")
        except BoxmakerError as error:
            self._complain(str(error))
        return True

    def _cancel(self) -> None:
        noted = self._world.port.cancel(self._session) if self._session else None
        turn = noted.turn if noted else None
        self._screen.say(f"Turn {turn} is being stopped." if turn else "No turn is running.", Ink.DIM)

    def _complain(self, words: str) -> None:
        self._screen.say(f"! {render.safe_line(words)}", Ink.WARN, hang=2)
