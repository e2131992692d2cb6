"""The events of a turn -> what the owner sees: TurnView for eyes, JsonView for programs.

`answer` is the screen of the model's answer, `aside` that of everything else (thinking, tools,
waiting, notices); in a conversation both are the terminal. Where `answer` is not a terminal it
gets the final text once, as it came. Not for several threads.
"""

import json
from typing import Protocol, TextIO

import attrs

from bxcore import convert
from bxcore.deadline import Clock
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnded, TurnEnding
from bxcore.wire.kinds import KIND_OF
from bxctl import render
from bxctl.blocks import QUEUED, Block, Status
from bxctl.render import Cut, Ink, Screen

_NAME_CUT = 40
"""No tool of ours has a longer name; a model may make one up."""


_WORDS = (channel.ReasoningDelta, channel.TextDelta, channel.TurnSnapshot)
"""The events that carry the model's words as they come."""

_WHY_CUT = 320
"""What brokerd and loopd say of a call themselves is shorter."""

_TELLING = {"command": Cut.MIDDLE, "url": Cut.MIDDLE, "path": Cut.BEGIN, "query": Cut.END}
"""The arguments that say best what a call does, the best first, and where each may be cut: a path ends in its file."""


class View(Protocol):
    """Where the events of a turn go."""

    def show(self, event: object) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Nothing came for a moment: redraw what shows elapsed time."""
        ...

    def tell(self, words: str) -> None:
        """Say something of bxctl's own."""
        ...

    def wait(self, words: str) -> None:
        """Say what bxctl itself waits for, until the next event."""
        ...

    def hush(self) -> None:
        """The owner wants no more of the model's words."""
        ...

    def resume(self) -> None:
        """The turn goes on after all: show what was hushed."""
        ...


@attrs.frozen(kw_only=True)
class Wishes:
    """What the owner wants to see beside the answer."""

    reasoning: bool = True
    usage: bool = True


class TurnView:
    """Draws one turn. Make a new one for each."""

    def __init__(self, *, answer: Screen, aside: Screen, clock: Clock, wishes: Wishes) -> None:
        self._answer = answer
        self._aside = aside
        self._clock = clock
        self._wishes = wishes
        self._reasoning = Block(aside, first="~ ", each="~ ", ink=Ink.DIM)
        self._text = Block(answer)
        self._step = 0
        self._thought = ""
        self._said = [""]  # the answer text of each step so far
        self._front = ""  # of an answer that is too long for turn_ended
        self._open_call: int | None = None
        self._reread = 0
        self._status = Status(aside, clock)
        self._hushed: list[object] | None = None

    def show(self, event: object) -> None:
        if isinstance(event, channel.TurnSnapshot):
            self._front = ""  # on another connection all parts come again
        if self._hushed is not None and isinstance(event, _WORDS):
            self._hushed.append(event)
        else:
            self._show(event)

    def _show(self, event: object) -> None:
        match event:
            case channel.PromptProgress() | channel.TurnWaiting() | channel.MessageAccepted():
                self._wait_for(event)
            case channel.ReasoningDelta():
                self._think(event.step, event.text)
            case channel.TextDelta():
                self._speak(event.step, event.text)
            case channel.ToolCalled() | channel.ApprovalPending() | channel.ToolReturned():
                self._tool(event)
            case channel.TurnNotice():
                self.tell(f"{event.text} [{event.code}]")
            case channel.StepUsage():
                self._reread += event.reread
            case channel.TurnSnapshot():
                self._catch_up(event)
            case channel.AnswerPart():
                self._front += event.text
            case TurnEnded():
                self._end(event)

    def _wait_for(self, event: channel.PromptProgress | channel.TurnWaiting | channel.MessageAccepted) -> None:
        match event:
            case channel.PromptProgress():
                self._status.reading(event)
            case channel.TurnWaiting():
                self._reasoning.end()
                self._text.end()
                self._status.waiting(event)
            case channel.MessageAccepted():
                if event.queued:
                    self._status.say(QUEUED)

    def tick(self) -> None:
        self._status.redraw()

    def tell(self, words: str) -> None:
        self._end_blocks()
        self._aside.say(f"! {render.safe_line(words)}", Ink.WARN, hang=2)

    def wait(self, words: str) -> None:
        self._reasoning.end()
        self._text.end()
        self._status.say(words)

    def hush(self) -> None:
        if self._hushed is None:
            self._hushed = []

    def resume(self) -> None:
        missed, self._hushed = self._hushed or (), None
        for event in missed:
            self._show(event)

    # -- what the model says ---------------------------------------------------------------------

    def _enter(self, step: int) -> None:
        if self._open_call is not None:
            self._end_blocks()
        if step != self._step:
            self._begin(step)

    def _begin(self, step: int) -> None:
        self._end_blocks()
        self._step, self._thought = step, ""
        self._said.append("")

    def _think(self, step: int, text: str) -> None:
        self._enter(step)
        self._thought += text
        if not self._wishes.reasoning:
            self._status.say("thinking")
            return
        self._status.clear()
        self._text.end()
        self._reasoning.add(text)

    def _speak(self, step: int, text: str) -> None:
        self._enter(step)
        self._said[-1] += text
        if self._answer.terminal:
            self._reasoning.end()
            self._status.clear()
            self._text.add(text)

    def _catch_up(self, snapshot: channel.TurnSnapshot) -> None:
        """Show what came while nobody was listening: the rest of this step, or all of a later one."""
        if snapshot.step > self._step:
            self._begin(snapshot.step)
        if rest := snapshot.reasoning.removeprefix(self._thought):
            self._think(snapshot.step, rest)
        if rest := snapshot.text.removeprefix(self._said[-1]):
            self._speak(snapshot.step, rest)

    # -- tools -----------------------------------------------------------------------------------

    def _tool(self, event: channel.ToolCalled | channel.ApprovalPending | channel.ToolReturned) -> None:
        match event:
            case channel.ToolCalled():
                self._call(event)
            case channel.ApprovalPending():
                self._question(event)
            case channel.ToolReturned():
                self._result(event)

    def _call(self, event: channel.ToolCalled) -> None:
        self._end_blocks()
        head = self._aside.glyph("· ", "- ")
        name = render.clip(render.safe_line(event.name[: _NAME_CUT + 1]), _NAME_CUT, unicode=self._aside.unicode)
        room_for_result = 24
        used = len(head) + render.cells(name) + room_for_result
        self._aside.write(f"{head}{name} {telling(event.arguments, self._aside, used=used)}", Ink.DIM)
        self._open_call = event.call

    def _question(self, event: channel.ApprovalPending) -> None:
        self._end_blocks()
        name = render.clip(render.safe_line(event.name[: _NAME_CUT + 1]), _NAME_CUT, unicode=self._aside.unicode)
        self._aside.line(f"{name} waits for your answer to question {event.approval}", Ink.WARN)

    def _result(self, event: channel.ToolReturned) -> None:
        arrow = self._aside.glyph("→", "->")
        size = render.size(len(event.content.encode("utf-8", "replace")))
        words = f" {arrow} {size}{', cut' if event.truncated else ''}"
        if not event.ok:
            words = f" {arrow} not carried out: {why_not(event.content, unicode=self._aside.unicode)}"
        if self._open_call != event.call:
            self._end_blocks()
            words = self._aside.glyph("· ", "- ") + render.safe_line(event.name) + words
        elif not event.ok:
            self._aside.write("\n")
            words = " " + words
        if event.ok:
            self._aside.write(words + "\n", Ink.DIM)
        else:
            self._aside.say(words, Ink.DIM, hang=4)  # why a call was not carried out is worth more than a line
        self._open_call = None

    # -- the end ---------------------------------------------------------------------------------

    def _end(self, event: TurnEnded) -> None:
        if event.ending is not TurnEnding.CANCELLED or not self._answer.terminal:
            self.resume()  # the cancel came too late, or nobody saw the words yet
        text = self._front + event.text
        if self._answer.terminal and self._hushed is None:
            self._speak_missing(text)
        self._end_blocks()
        if not self._answer.terminal and text:
            self._answer.write(text if text.endswith("\n") else text + "\n")
        if event.ending is not TurnEnding.ANSWERED:
            self._aside.say(ending_line(event), Ink.WARN, hang=2)
        if self._wishes.usage and event.prompt:
            self._aside.say(usage_line(event, self._reread), Ink.DIM)

    def _speak_missing(self, text: str) -> None:
        if text in self._said:
            return
        if not text.startswith(self._said[-1]):
            self._begin(self._step + 1)
        self._speak(self._step, text.removeprefix(self._said[-1]))

    def _end_blocks(self) -> None:
        self._status.clear()
        self._reasoning.end()
        self._text.end()
        self._aside.fresh_line()
        self._open_call = None


class JsonView:
    """Each event as one ASCII line: the wire's own body with its `kind` in front."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: object) -> None:
        self._stream.write(json_line(event) + "\n")
        self._stream.flush()

    def tick(self) -> None:
        pass  # a program reads the events; elapsed time is its own business

    def tell(self, words: str) -> None:
        pass  # nothing but events belongs on this stream

    def wait(self, words: str) -> None:
        pass

    def hush(self) -> None:
        pass  # a program gets every event

    def resume(self) -> None:
        pass


def json_line(message: object) -> str:
    """Return a message of the wire as one line of ASCII JSON."""
    body = convert.unstructure(message)
    assert isinstance(body, dict)
    return json.dumps({"kind": KIND_OF[type(message)], **body}, ensure_ascii=True, separators=(",", ":"))


def telling(arguments: str, screen: Screen, *, used: int) -> str:
    """Return a call's arguments on what is left of a line; where they do not fit, the one that tells most of it."""
    whole = render.clip_line(arguments, screen, used=used, where=Cut.MIDDLE)
    if whole == render.safe_line(arguments):
        return whole
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return whole
    for name, where in _TELLING.items():
        if isinstance(given, dict) and isinstance(value := given.get(name), str) and value:
            return f"{name} {render.clip_line(value, screen, used=used + len(name) + 1, where=where)}"
    return whole


def why_not(content: str, *, unicode: bool) -> str:
    """Return why a call was not carried out; a denial ends in its code."""
    code, rest = render.denial(content)
    words = render.clip(render.safe_line(rest[: _WHY_CUT + 1]), _WHY_CUT, unicode=unicode)
    return f"{words} [{code}]" if code else words


def ending_line(event: TurnEnded) -> str:
    """Return the sentence of a turn that was not answered."""
    sentence = event.sentence or "the turn ended without a sentence that says why"
    return f"! {render.safe_line(sentence)} [{event.ending.value}]"


def usage_line(event: TurnEnded, reread: int) -> str:
    """Return one line on what a turn cost."""
    again = f" ({render.count(reread)} re-read)" if reread else ""
    read = f"read {render.count(event.read)} tokens{again}, {render.count(event.cached)} from the cache"
    return f"  {read}; wrote {render.count(event.output)}; {render.seconds(event.elapsed_ms)}"
