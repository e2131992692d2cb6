"""Bytes of a page -> text: which character set they are in, as browsers decide it, and whether they are text. Pure."""

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SAID = re.compile(r"""charset\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""")
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,400}?charset|\?xml\b[^>]{0,200}?encoding)\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""", re.I
)
_LOOKED_AT = 1_024

# Python knows codecs that are no character sets (idna, unicode_escape, punycode): a page may ask for these alone.
_KNOWN = re.compile(
    r"ascii|utf-8(-sig)?|utf-16(-[lb]e)?|iso8859-\d+|cp\d{3,4}|koi8-[ru]|mac-(roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5(hkscs)?|euc_(jp|kr)|shift_jis|iso2022_jp|johab|hz|tis-620"
)
# What pages mean by these names (the Encoding standard).
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "shift_jis": "cp932", "euc_kr": "cp949"}


def decoded(body: bytes, content_type: str, *, sure: bool) -> str | None:
    """Return the text of `body`, or None where it is none. `sure`: its type says that it is text."""
    for mark, marked in _MARKS:
        if body.startswith(mark) and (sure or marked == "utf-8"):
            return body[len(mark) :].decode(marked, "replace")
    name = _known(_SAID.search(content_type)) or _known(_DECLARED.search(body[:_LOOKED_AT]))
    # Only these sets write letters with zero bytes.
    if b"\0" in body[:_LOOKED_AT] and (name is None or not name.startswith("utf-16")):
        return None
    if name is not None:
        return body.decode(name, "replace")
    try:
        # Incremental, since a body that was cut may end inside a letter.
        return codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace") if sure else None


def _known(found: "re.Match[str] | re.Match[bytes] | None") -> str | None:
    if found is None:
        return None
    said = found[1]
    try:
        name = codecs.lookup(said if isinstance(said, str) else said.decode("ascii")).name
    except LookupError:
        return None
    return _MEANT.get(name, name) if _KNOWN.fullmatch(name) else None
