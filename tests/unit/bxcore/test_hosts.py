"""Names, hosts of grants and URLs. Cyrillic, full-width and circled letters stand here on purpose."""

import pytest

from bxcore import hosts
from bxcore.hosts import BadHost, HostRule, Target, Url

# E1: each of these is 127.0.0.1 or 0.0.0.0 for getaddrinfo.
E1 = ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "017700000001", "0", "0x0", "127.0.0.1", "1.2.3.4"]
# E2: each of these is 127.0.0.1 for an IDNA library.
E2 = ["\uff11\uff12\uff17.\uff10.\uff10.\uff11", "①②⑦.⓪.⓪.①", "127。0。0。1"]
# E12: a Cyrillic a, a Kelvin sign, a dotless i, a sharp s, mixed scripts, a zero-width space.
E12 = ["аllowed.com", "\u212aelvin.net", "ıs.org", "straße.de", "раураl.com", "exa\u200bmple.net"]

BAD_NAMES = {
    **{f"E1 {text}": text for text in E1},
    **{f"E2 {number}": text for number, text in enumerate(E2)},
    **{f"E12 {number}": text for number, text in enumerate(E12)},
    "E10 two trailing dots": "good.example.org..",
    "E10 leading dot": ".good.example.org",
    "E10 empty label": "a..com",
    "E10 only a dot": ".",
    "E10 empty": "",
    "E10 a label of 64": f"{'a' * 64}.com",
    "E10 254 bytes": ".".join(["a" * 62] * 4) + ".ab",
    "E10 a port twice": "good.example.org:443:80",
    "E3 v6": "::1",
    "E3 v6 in brackets": "[::1]",
    "NUL": "good.example.org\0",
    "NUL inside": "evil.example.com\0.good.example.org",
    "newline": "good.example.org\n",
    "carriage return": "good.example.org\r",
    "space": "allowed .com",
    "tab": "\tgood.example.org",
    "percent": "allowed%2ecom",
    "underscore": "a_b.com",
    "starts with a hyphen": "-a.net",
    "ends with a hyphen": "a-.net",
    "last label a number": "example.1",
    "last label begins with a digit": "example.0x7f",
    "slash": "good.example.org/",
    "user": "me@good.example.org",
    "star": "*.good.example.org",
}


@pytest.mark.parametrize("text", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_what_is_no_name_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(BadHost) as refusal:
        hosts.host(text)
    assert len(text) < 5 or text not in str(refusal.value)


GOOD_NAMES = {
    "example.org": "example.org",
    "EXAMPLE.Org": "example.org",
    "example.org.": "example.org",
    "a-b.c--d.example": "a-b.c--d.example",
    "1.2.3.4.in-addr.example": "1.2.3.4.in-addr.example",
    "localhost": "localhost",
    "XN--LLOWED-4NF.net": "xn--llowed-4nf.net",
    f"{'a' * 63}.com": f"{'a' * 63}.com",
    ".".join(["a" * 62] * 4) + ".b": ".".join(["a" * 62] * 4) + ".b",
    ".".join(["a" * 62] * 4) + ".b.": ".".join(["a" * 62] * 4) + ".b",
}


@pytest.mark.parametrize(("text", "name"), GOOD_NAMES.items())
def test_e10_case_and_one_trailing_dot_make_no_other_name(text: str, name: str) -> None:
    assert hosts.host(text) == name


def test_e12_a_name_that_stands_for_other_letters_is_known_as_such() -> None:
    assert hosts.is_encoded("www.xn--llowed-4nf.net")
    assert not hosts.is_encoded("good.example.org")


def test_a_host_of_a_grant_means_443_unless_it_says_a_port() -> None:
    assert hosts.rule("Example.org.") == HostRule(host="example.org", wildcard=False, port=443)
    assert hosts.rule("example.org:8443") == HostRule(host="example.org", wildcard=False, port=8443)
    assert hosts.rule("*.Example.org:80") == HostRule(host="example.org", wildcard=True, port=80)
    assert str(hosts.rule("*.example.org")) == "*.example.org:443"


BAD_RULES = {
    "E11 nothing": "",
    "E11 everything": "*",
    "E11 everything, dotted": "*.",
    "E11 a top-level domain": "*.com",
    "E11 a top-level domain, dotted": "*.com.",
    "E11 a country's second level": "*.co.uk",
    "E11 a country's second level, another": "*.com.br",
    "E11 a hosting firm": "*.github.io",
    "star inside": "a.*.example.org",
    "star in a label": "*a.example.org",
    "two stars": "*.*.example.org",
    "star without a dot": "*example.org",
    "no port": "example.org:",
    "port zero": "example.org:0",
    "port with a zero": "example.org:0443",
    "port with a sign": "example.org:+443",
    "port with a space": "example.org: 443",
    "port in other digits": "example.org:٤٤٣",
    "port too high": "example.org:65536",
    "E10 port twice": "good.example.org:443:80",
    "scheme": "https://example.org",
    "path": "example.org/",
    "v4": "10.0.0.1",
    "v4 with port": "10.0.0.1:443",
    "v6": "[::1]:443",
    "user": "me@example.org",
}


@pytest.mark.parametrize("text", BAD_RULES.values(), ids=BAD_RULES.keys())
def test_a_host_that_no_grant_may_name(text: str) -> None:
    with pytest.raises(BadHost):
        hosts.rule(text)


@pytest.mark.parametrize("text", ["https://example.org/", "http://example.org", "example.org/x", "//example.org"])
def test_a_whole_address_in_the_place_of_a_host_is_told_so(text: str) -> None:
    with pytest.raises(BadHost, match="a host's name only, without https:// and without a path"):
        hosts.rule(text)


@pytest.mark.parametrize("text", ["*.bbc.co.uk", "*.somebody.github.io", "*.example.com", "*.web.de", "co.uk", "com"])
def test_a_wildcard_below_a_name_of_somebody_is_taken_and_a_plain_name_always(text: str) -> None:
    assert hosts.rule(text).wildcard == text.startswith("*")


@pytest.mark.parametrize(
    ("host", "covered"),
    {
        "example.com": False,
        "a.example.com": True,
        "a.b.example.com": True,
        f"evil{'example.com'}": False,
        "example.com.evil.net": False,
    }.items(),
)
def test_e11_a_wildcard_is_one_label_or_more_and_never_the_apex(host: str, *, covered: bool) -> None:
    rule = hosts.rule("*.example.com")
    assert rule.covers(Target(scheme="https", host=host, port=443)) is covered
    assert not rule.covers(Target(scheme="https", host=host, port=8443))


def test_a_rule_without_a_star_covers_its_name_and_port_alone() -> None:
    rule = hosts.rule("example.org:80")
    assert rule.covers(hosts.target("http://example.org/x"))
    assert not rule.covers(hosts.target("https://example.org/x"))
    assert not rule.covers(hosts.target("http://www.example.org/x"))


BAD_URLS = {
    "E9 two users": "https://user@good.example.org@evil.example.com/",
    "E9 user": "https://good.example.org@evil.example.com/",
    "E9 user with a port": "https://good.example.org:80@evil.example.com/",
    "E9 empty user": "https://@evil.example.com/",
    "E9 fragment": "http://good.example.org#@evil.example.com",
    "E9 backslash": "http://good.example.org\\@evil.example.com",
    "E9 backslash instead of slash": "https:\\\\good.example.org\\x",
    "E9 query": "https://good.example.org?@evil.example.com/",
    "E9 encoded at": "https://good.example.org%40evil.example.com/",
    "E10 port twice": "https://good.example.org:443:80/",
    **{f"E1 {text}": f"https://{text}/" for text in E1},
    **{f"E2 {number}": f"https://{text}/" for number, text in enumerate(E2)},
    **{f"E12 {number}": f"https://{text}/" for number, text in enumerate(E12)},
    "E3 v6": "https://[::1]/",
    "E3 v6 mapped": "https://[::ffff:10.0.0.1]:443/",
    "E3 v6 without brackets": "https://::1/",
    "E14 file": "file:///etc/passwd",
    "E14 javascript": "javascript:alert(1)",
    "E14 data": "data:text/html,x",
    "ftp": "ftp://example.org/",
    "gopher": "gopher://example.org/",
    "no scheme": "example.org/x",
    "scheme-relative": "//example.org/x",
    "one slash": "https:/example.org/x",
    "three slashes": "https:///example.org/x",
    "no slashes": "https:example.org",
    "no host": "https://",
    "no host but a port": "https://:443/",
    "empty port": "https://example.org:/",
    "port zero": "https://example.org:0/",
    "port with zero": "https://example.org:0443/",
    "port with sign": "https://example.org:-1/",
    "port with plus": "https://example.org:+443/",
    "port too high": "https://example.org:65536/",
    "port too long": f"https://example.org:{'9' * 5000}/",
    "port of another alphabet": "https://example.org:٤٤٣/",
    "http on the port of https": "http://example.org:443/",
    "space in front": " https://example.org/",
    "newline in front": "\nhttps://example.org/",
    "newline behind": "https://example.org/\n",
    "newline inside": "https://exa\nmple.net/",
    "carriage return and a header": "https://example.org/ HTTP/1.1\r\nHost: evil.example.com\r\n",
    "space inside": "https://example.org/a b",
    "tab inside": "https://example.org/\tb",
    "NUL": "https://example.org/\0",
    "letters beyond ASCII": "https://example.org/é",
    "bad percent": "https://example.org/%zz",
    "half a percent": "https://example.org/%4",
    "too long": f"https://example.org/{'a' * hosts.MAX_URL}",
    "empty": "",
}


@pytest.mark.parametrize("url", BAD_URLS.values(), ids=BAD_URLS.keys())
def test_a_url_that_is_refused(url: str) -> None:
    with pytest.raises(BadHost):
        hosts.target(url)


GOOD_URLS = {
    "https://example.org": ("https", "example.org", 443, "/"),
    "HTTPS://EXAMPLE.ORG./": ("https", "example.org", 443, "/"),
    "http://example.org/a?b=c&d": ("http", "example.org", 80, "/a?b=c&d"),
    "https://example.org:8443/a/../b;x=1": ("https", "example.org", 8443, "/a/../b;x=1"),
    "https://example.org/a#part?x": ("https", "example.org", 443, "/a"),
    "https://example.org/#@evil.example.com": ("https", "example.org", 443, "/"),
    "https://example.org/@somebody/1?u=https://evil.example.com/": (
        *("https", "example.org", 443),
        "/@somebody/1?u=https://evil.example.com/",
    ),
    "https://example.org/%C3%A9?q=%20": ("https", "example.org", 443, "/%C3%A9?q=%20"),
    "https://xn--llowed-4nf.example.org/": ("https", "xn--llowed-4nf.example.org", 443, "/"),
}


@pytest.mark.parametrize(("text", "parts"), GOOD_URLS.items())
def test_a_url_is_taken_apart(text: str, parts: tuple[str, str, int, str]) -> None:
    scheme, host, port, resource = parts
    expected = Url(target=Target(scheme=scheme, host=host, port=port), resource=resource)
    assert hosts.parse_url(text) == expected
    assert hosts.parse_url(str(expected)) == expected
    assert hosts.target(text).authority == f"{host}:{port}"
