"""Rows P1 (as far as text goes), P6, P7 and P9 of the bad-input list: paths are read in one form and never folded."""

import pytest

from bxcore import paths
from bxcore.paths import BadPath

GOOD = {
    "root": "/",
    "file": "/srv/notes/a.txt",
    "P6 255-byte component": "/" + "a" * 255,
    "P6 4,096 bytes": "/" + "/".join(["a" * 255] * 15 + ["b" * 255]),
    "P6 trailing space is part of the name": "/srv/a ",
    "P6 direction override is part of the name": "/srv/\u202egpj.exe",
    "P6 zero width is part of the name": "/srv/a\u200bb",
    "P7 composed": "/srv/\u00e9",
    "P7 decomposed": "/srv/e\u0301",
    "P7 full-width slash is no slash": "/srv/a\uff0fb",
    "P7 one-dot leaders are no dots": "/srv/\u2024\u2024/b",
    "P7 ligature": "/srv/\ufb01le",
    "P9 variable": "/srv/$HOME",
    "P9 separator": "/srv/${IFS}x",
    "P9 glob": "/srv/*",
    "P9 option": "/srv/-rf",
    "P9 home sign": "/srv/~",
    "three dots": "/srv/...",
    "dots in a name": "/srv/..a/b..",
    "dot file": "/srv/.git",
    "backslash": "/srv/a\\..\\b",
    "per cent": "/srv/%2e%2e/a",
    "colon and comma": "/srv/a:b,c",
}

BAD = {
    "P1 parent": "/..",
    "P1 parent inside": "/granted/../etc/passwd",
    "P1 parent at the end": "/granted/..",
    "P1 relative": "a/../../b",
    "P1 only parent": "..",
    "P1 two slashes": "/granted//a",
    "P1 only slashes": "//",
    "P1 slashes in front": "//granted",
    "P1 dot component": "/./granted",
    "P1 dot inside": "/granted/./a",
    "P1 dot at the end": "/granted/.",
    "P6 NUL": "/srv/a\0.txt",
    "P6 newline": "/srv/a\nb",
    "P6 carriage return": "/srv/a\rb",
    "P6 tab": "/srv/a\tb",
    "P6 escape": "/srv/\x1b[8m",
    "P6 delete": "/srv/\x7f",
    "P6 C1": "/srv/\x9b8m",
    "P6 next line": "/srv/a\x85b",
    "P6 line separator": "/srv/a\u2028b",
    "P6 paragraph separator": "/srv/a\u2029b",
    "P6 empty": "",
    "P6 dot": ".",
    "P6 trailing slash": "/srv/a/",
    "P6 256-byte component": "/" + "a" * 256,
    "P6 256-byte component of wide characters": "/" + "é" * 128,
    "P6 4,097 bytes": "/" + "/".join(["a" * 255] * 15 + ["b" * 254, "c"]),
    "P6 leading space": " /srv",
    "P9 home": "~/a",
    "P9 somebody's home": "~root/a",
    "P9 variable": "$HOME/a",
    "F5 lone surrogate": "/srv/\ud800",
    "F5 byte that is no UTF-8": "/srv/\udcff",
    "URL": "file:///srv/a",
    "Windows": "C:\\a",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_a_path_in_its_one_form_is_returned_as_it_is(text: str) -> None:
    assert paths.check(text) == text


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_any_other_text_is_refused_without_quoting_it(text: str) -> None:
    for check in (paths.check, paths.check_grant):
        with pytest.raises(BadPath) as caught:
            check(text)
        assert str(caught.value).startswith("expected ")
        assert len(text) < 3 or text not in str(caught.value)


NO_GRANT = {"everything": "/", "colon": "/srv/a:ro", "comma": "/srv/a,b", "colon alone": "/:"}


@pytest.mark.parametrize("text", NO_GRANT.values(), ids=NO_GRANT.keys())
def test_a_path_that_no_grant_may_name_can_still_be_asked_for(text: str) -> None:
    assert paths.check(text) == text
    with pytest.raises(BadPath):
        paths.check_grant(text)


def test_a_grant_may_name_any_other_path() -> None:
    assert [paths.check_grant(text) for text in GOOD.values() if text not in {"/", "/srv/a:b,c"}]


def test_components_are_told_outermost_first() -> None:
    assert paths.parts("/") == ()
    assert paths.parts("/srv") == ("srv",)
    assert paths.parts("/srv/notes/a b") == ("srv", "notes", "a b")


BELOW = {
    "itself": ("/granted", "/granted"),
    "inside": ("/granted/a", "/granted"),
    "deep inside": ("/granted/a/b/c", "/granted/a"),
    "everything is below the root": ("/etc/passwd", "/"),
    "the root itself": ("/", "/"),
}

NOT_BELOW = {
    "P1 same beginning": ("/granted-evil", "/granted"),
    "P1 same beginning, deeper": ("/granted-evil/granted/a", "/granted"),
    "around it": ("/granted", "/granted/a"),
    "the root": ("/", "/granted"),
    "beside it": ("/other/granted", "/granted"),
    "P7 case": ("/Granted/a", "/granted"),
    "P7 decomposed": ("/e\u0301/a", "/\u00e9"),
    "P7 ligature": ("/\ufb01le", "/file"),
    "P7 full-width slash": ("/granted\uff0fa", "/granted"),
    "P6 trailing space": ("/granted /a", "/granted"),
}


@pytest.mark.parametrize(("path", "root"), BELOW.values(), ids=BELOW.keys())
def test_below_means_inside_or_the_same(path: str, root: str) -> None:
    assert paths.below(path, root)


@pytest.mark.parametrize(("path", "root"), NOT_BELOW.values(), ids=NOT_BELOW.keys())
def test_nothing_else_is_below(path: str, root: str) -> None:
    assert not paths.below(path, root)
