"""The fake reads a text as server 11.6 does: whom it names, and what it makes the server and its clients fetch."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.mattermost import Mattermost
from tests.fakes.mattermostparts import rules

NAMES = dict.fromkeys(["ann", "claw", "claw.dia", "clawdia", "box-1", "x_y"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@ann", "ann"),
        ("@ANN, hello", "ann"),
        ("hello (@ann)", "ann"),
        ("@ann.", "ann"),
        ("@ann...", "ann"),
        ("@claw.dia.", "claw.dia"),
        ("@claw.diana", ""),
        ("@clawdia", "clawdia"),
        ("@claw: go", "claw"),
        ("@box-1-", "box-1"),
        ("@x_y_", "x_y"),
        ("mail@ann", ""),
        ("me.@ann", "ann"),
        ("**@ann**", "ann"),
        (r"\@ann", "ann"),
        ("&#64;ann", "ann"),
        ("&commat;ann", "ann"),
        ("@\u200bann", ""),
        ("`@ann`", ""),
        ("``@ann` ``", ""),
        ("`@ann", "ann"),
        ("```\n@ann\n```", ""),
        ("    @ann", ""),
        ("> ```\n> @ann", ""),
        ("- ```\n@ann", "ann"),
        ("[@ann](http://example.com)", "ann"),
        ("![@ann](http://example.com/a.png)", "ann"),
        ("http://example.com/@ann", "ann"),
        ("no name", ""),
    ],
)
def test_who_is_named(text: str, named: str) -> None:
    assert " ".join(sorted(rules.mentions(text, NAMES).names)) == named


@pytest.mark.parametrize(
    "text", ["@all", "@Channel!", "@here.", r"\@all", "&#x40;all", "x @all y", "http://example.com/@all"]
)
def test_what_names_everybody(text: str) -> None:
    assert rules.mentions(text, NAMES).everybody


@pytest.mark.parametrize("text", ["`@all`", "@\u200ball", "all", "@all-hands", "a@all", "~~~\n@here\n~~~"])
def test_what_names_nobody(text: str) -> None:
    assert not rules.mentions(text, NAMES).everybody


IMAGE = "http://example.com/a.png"
DEFINED = f"\n\n[x]: {IMAGE}"


@pytest.mark.parametrize(
    "text",
    [
        f"![]({IMAGE})",
        f"![a [b] c]({IMAGE})",
        f'![a]( <{IMAGE}> "title" )',
        f"![a]({IMAGE} =100x200)",
        f"[![a]({IMAGE})](http://example.org)",
        f"![![a]({IMAGE})](http://example.org/b.png)",
        f"![x]{DEFINED}",
        f"![x][]{DEFINED}",
        f"![text][X]{DEFINED}",
        f"> ![a\n> b]({IMAGE})",
        f"![a\nb]({IMAGE})",
        f"- ```\n![a]({IMAGE})",
        f"`![a]({IMAGE})",
        f"\\\\![a]({IMAGE})",
        f"!\\[a] ![b]({IMAGE})",
        "![a](http&#58;//example.com/a.png)",
    ],
)
def test_every_form_of_an_image_is_fetched_whatever_the_setting(text: str) -> None:
    fetched = rules.fetches(text, {}, previews=False)
    assert {fetch.who for fetch in fetched if fetch.url == IMAGE} == {"server", "client"}


@pytest.mark.parametrize(
    "text",
    [
        f"!\\[a]({IMAGE})",
        f"\\!\\[a]({IMAGE})",
        f"\\![a]({IMAGE})",
        f"!\\[x]{DEFINED}",
        f"`![a]({IMAGE})`",
        f"```\n![a]({IMAGE})\n```",
        f"    ![a]({IMAGE})",
        f"![a] ({IMAGE}x",
        f"[a]({IMAGE})",
    ],
)
def test_what_is_no_image(text: str) -> None:
    assert not [fetch for fetch in rules.fetches(text, {}, previews=False) if fetch.url == IMAGE]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see http://example.com/x.", "http://example.com/x"),
        ("(https://example.com/a_(b))", "https://example.com/a_(b)"),
        ("HTTPS://example.com", "HTTPS://example.com"),
        ("ftp://example.com/x", "ftp://example.com/x"),
        ("www.example.com", "http://www.example.com"),
        ("http://one.example.com http://two.example.com", "http://one.example.com"),
        ("<http://example.com/x>", "http://example.com/x"),
        ("http://localhost/x", "http://localhost/x"),
        ("xhttp://example.com", None),
        ("example.com", None),
        ("`http://example.com`", None),
        ("[text](http://example.com)", None),
        ("[open http://example.com", None),  # the server looks for none behind a bracket that is open
    ],
)
def test_the_first_address_is_fetched_for_its_preview(text: str, url: str | None) -> None:
    fetched = [fetch.url for fetch in rules.fetches(text, {}, previews=True)]
    assert fetched == ([] if url is None else [url])
    assert rules.fetches(text, {}, previews=False) == ()


ATTACHMENTS: dict[str, Any] = {"attachments": [{"image_url": IMAGE, "text": "![a](http://example.com/b.png)"}]}


def test_attachments_are_fetched() -> None:
    urls = {fetch.url for fetch in rules.fetches("x", ATTACHMENTS, previews=True)}
    assert urls == {IMAGE, "http://example.com/b.png"}


@pytest.mark.parametrize(("value", "stops"), [("true", True), (True, False), ("True", False), ("1", False)])
def test_unsafe_links_is_the_text_true_and_nothing_else(value: object, stops: bool) -> None:
    text = f"![a]({IMAGE}) http://example.org"
    assert (rules.fetches(text, {"unsafe_links": value, **ATTACHMENTS}, previews=True) == ()) is stops


def test_a_permalink_opens_attachments_in_spite_of_unsafe_links() -> None:
    text = f"https://chat.example.org/team/pl/{'a' * 26}"
    props = {"unsafe_links": "true", **ATTACHMENTS}
    assert rules.fetches(text, props, previews=True, site_url="https://chat.example.org")
    assert rules.fetches(text, {"unsafe_links": "true"}, previews=True, site_url="https://chat.example.org") == ()


@pytest.fixture
def server() -> Iterator[Mattermost]:
    with Mattermost() as started:
        yield started


def test_the_server_remembers_what_a_post_fetched_and_whom_it_notified(server: Mattermost) -> None:
    ann, (box, _) = server.add_user("ann"), server.add_bot("box")
    room = server.add_channel("O", [ann, box])
    first = server.say(box, room, f"@ann @all ![a]({IMAGE})")
    server.say(box, room, "`@ann`", props={"unsafe_links": "true"})
    assert {(fetch.post, fetch.url) for fetch in server.fetches} == {(first["id"], IMAGE)}
    notified = [(sorted(told.users), sorted(told.everybody)) for told in server.notified[-2:]]
    assert notified == [([ann], ["@all"]), ([], [])]
    server.edit(first["id"], "![a](http://example.com/edited.png)")
    assert server.fetches[-1].url == "http://example.com/edited.png"
