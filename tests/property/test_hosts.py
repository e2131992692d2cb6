import ipaddress
import string

from hypothesis import example, given
from hypothesis import strategies as st

from bxcore import addresses, hosts
from bxcore.hosts import BadHost, Target

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.tuples(st.lists(LABELS, max_size=4), st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)).map(
    lambda parts: ".".join([*parts[0], parts[1]])
)
MARKS = st.text(alphabet=string.ascii_letters + string.digits + ".-:/@#?\\[]%*_ \0\n\u200b\uff0e。а", max_size=40)


@given(name=NAMES, upper=st.booleans(), dot=st.booleans())
def test_every_name_is_taken_whatever_its_case_and_last_dot(name: str, *, upper: bool, dot: bool) -> None:
    spelled = (name.upper() if upper else name) + ("." if dot else "")
    assert hosts.host(spelled) == name


@given(st.one_of(MARKS, st.text(max_size=300)))
@example("127.1")
def test_any_text_is_refused_or_a_name_that_stays_as_it_is_and_is_no_address(text: str) -> None:
    try:
        name = hosts.host(text)
    except BadHost:
        return
    assert hosts.host(name) == name
    assert set(name) <= set(string.ascii_lowercase + string.digits + ".-")
    assert name.rsplit(".", 1)[-1][0] in string.ascii_lowercase
    assert text.lower().removesuffix(".") == name


@given(st.one_of(MARKS, MARKS.map("https://".__add__), st.text(max_size=100)))
def test_any_url_is_refused_or_leads_to_the_host_that_it_shows(text: str) -> None:
    try:
        url = hosts.parse_url(text)
    except BadHost:
        return
    assert hosts.parse_url(str(url)) == url
    authority = text.split("://", 1)[1].split("/", 1)[0].lower()
    assert authority.partition(":")[0].removesuffix(".") == url.target.host
    assert not set("\\@[] \r\n\0").intersection(authority)
    assert url.resource.startswith("/")
    assert "#" not in url.resource


@given(NAMES, NAMES, st.integers(1, 65_535), st.integers(1, 65_535))
def test_e11_a_wildcard_covers_exactly_what_ends_in_its_labels(name: str, base: str, port: int, other: int) -> None:
    try:
        rule = hosts.rule(f"*.{base}:{port}")
    except BadHost:
        assert hosts.belongs_to_many(base)
        return
    for candidate in (name, base, f"{name}.{base}", f"{name}{base}"):
        labels, wanted = candidate.split("."), base.split(".")
        expected = len(labels) > len(wanted) and labels[-len(wanted) :] == wanted
        assert rule.covers(Target(scheme="https", host=candidate, port=port)) is expected
        assert not rule.covers(Target(scheme="https", host=candidate, port=other)) or (expected and other == port)


@given(st.ip_addresses(v=4))
def test_no_address_that_the_library_calls_special_is_public(address: ipaddress.IPv4Address) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved or address.is_loopback
    if special or address.is_link_local or not address.is_global:
        # 3.11 and 3.13 differ on 192.0.0.9 and 192.0.0.10: refused here in any case.
        assert not addresses.is_public(str(address))


@given(st.ip_addresses(v=6))
@example(ipaddress.IPv6Address("2001:1ff::1"))
def test_no_v6_address_that_the_library_calls_special_or_that_holds_v4_is_public(
    address: ipaddress.IPv6Address,
) -> None:
    if addresses.is_public(str(address)):
        assert address.is_global
        special = address.is_private or address.is_multicast or address.is_reserved or address.is_link_local
        assert not special
        assert address.ipv4_mapped is None
        assert address.sixtofour is None
        assert address.teredo is None


@given(st.ip_addresses(v=4))
def test_e3_an_address_inside_of_another_is_never_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    high, low = number >> 16, number & 0xFFFF
    carriers = ("::", "::ffff:", "::ffff:0:", "64:ff9b::", "64:ff9b:1::", "2606:4700::5efe:")
    assert not any(addresses.is_public(f"{carrier}{address}") for carrier in carriers)
    assert not addresses.is_public(f"2002:{high:x}:{low:x}::1")
    assert not addresses.is_public(f"2001:0:{high:x}:{low:x}::1")


@given(st.text(max_size=50))
def test_any_text_that_is_no_address_is_not_public(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        assert not addresses.is_public(text)
