"""INV-11: whatever a program does with a Secret, nothing that it produces holds the value."""

import copy
import dataclasses
import io
import json
import logging
import pickle
import pprint
import reprlib
import sys
import tempfile
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import attrs
import cattrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bxcore import convert, logs
from bxcore.secrets import MOST_BYTES, Secret, SecretStore
from bxcore.settings.secrets import Backend, SecretSource


@attrs.frozen(kw_only=True)
class Holder:
    token: Secret


@dataclasses.dataclass(frozen=True)
class PlainHolder:
    token: Secret


def logged(secret: Secret, form: str) -> str:
    """Return what a logger of ours writes for the secret as an argument, or as part of one."""
    stream = io.StringIO()
    handler = logs._StderrHandler()
    handler.setFormatter(logs._LineFormatter("test"))
    before, sys.stderr = sys.stderr, stream
    try:
        handler.handle(logging.LogRecord("boxmaker.t", logging.ERROR, __file__, 1, form, (secret,), None))
        handler.handle(logging.LogRecord("boxmaker.t", logging.ERROR, __file__, 1, form, ([secret],), None))
    finally:
        sys.stderr = before
    assert stream.getvalue()
    return stream.getvalue()


def traced(secret: Secret) -> str:
    """Return a traceback that shows the variables of each frame."""

    def fail(token: Secret) -> None:
        holder, listed = Holder(token=token), [token]
        assert len(listed) == len([holder])
        raise RuntimeError(repr(token))

    try:
        fail(secret)
    except RuntimeError as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert "listed" in "".join(shown.format())
        return "".join(shown.format()) + logs.trace(error)
    raise AssertionError


def printed(secret: Secret) -> str:
    stream = io.StringIO()
    print(secret, file=stream)
    return stream.getvalue()


WAYS: dict[str, Callable[[Secret], object]] = {
    "str": str,
    "repr": repr,
    "ascii": ascii,
    "format": format,
    "f-string": lambda secret: f"{secret}",
    "f-string !r": lambda secret: f"{secret!r}",
    "f-string !s": lambda secret: f"{secret!s}",
    "f-string =": lambda secret: f"{secret=}",
    "f-string with a width": lambda secret: f"{secret:>40}",
    "str.format": "{0} {0!r}".format,
    "str.format attribute": "{0.name} {0._open}".format,
    "percent s": lambda secret: "%s" % (secret,),  # noqa: UP031 - the form that is tried
    "percent r": lambda secret: "%r" % (secret,),  # noqa: UP031
    "percent with it in a tuple": lambda secret: "%s" % ((secret,),),  # noqa: UP031
    "concatenation": lambda secret: "token " + secret,
    "concatenation from the left": lambda secret: secret + " token",
    "as a template": lambda secret: secret % (),
    "join": lambda secret: "".join([secret]),  # type: ignore[list-item]
    "join of its letters": "".join,
    "list": list,
    "index": lambda secret: secret[0],
    "membership": lambda secret: "a" in secret,
    "length": len,
    "bytes": bytes,
    "print": printed,
    "list of it": lambda secret: str([secret]),
    "dict of it": lambda secret: str({"token": secret}),
    "pprint": lambda secret: pprint.pformat({"token": [secret]}),
    "reprlib": lambda secret: reprlib.repr([secret]),
    "json": json.dumps,
    "json with str": lambda secret: json.dumps(secret, default=str),
    "json with repr": lambda secret: json.dumps([secret], default=repr),
    "json with vars": lambda secret: json.dumps(secret, default=vars),
    "json as a key": lambda secret: json.dumps({secret: 1}),
    "pickle": pickle.dumps,
    "pickle 0": lambda secret: pickle.dumps([secret], protocol=0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a holder": lambda secret: copy.deepcopy({"token": secret}),
    "replace": lambda secret: attrs.evolve(Holder(token=secret)),
    "attrs repr": lambda secret: repr(Holder(token=secret)),
    "attrs.asdict": lambda secret: attrs.asdict(Holder(token=secret)),
    "attrs.astuple": lambda secret: attrs.astuple(Holder(token=secret)),
    "attrs hash": lambda secret: hash(Holder(token=secret)),
    "attrs equality": lambda secret: Holder(token=secret) == Holder(token=Secret("n", secret.reveal())),
    "dataclass repr": lambda secret: repr(PlainHolder(secret)),
    "dataclass asdict": lambda secret: dataclasses.asdict(PlainHolder(secret)),
    "convert": convert.unstructure,
    "convert of a holder": lambda secret: convert.unstructure(Holder(token=secret)),
    "cattrs": lambda secret: cattrs.Converter().unstructure(Holder(token=secret)),
    "vars": vars,
    "dir": dir,
    "slots": lambda secret: [getattr(secret, name) for name in Secret.__slots__],
    "getstate": lambda secret: secret.__getstate__(),
    "reduce": lambda secret: secret.__reduce__(),
    "reduce_ex": lambda secret: secret.__reduce_ex__(2),
    "hash": hash,
    "log %s": lambda secret: logged(secret, "token=%s"),
    "log %r": lambda secret: logged(secret, "token=%r"),
    "log %d": lambda secret: logged(secret, "token=%d"),
    "log without a place for it": lambda secret: logged(secret, "token"),
    "traceback": traced,
    "Path": Path,  # type: ignore[dict-item]
    "int": int,  # type: ignore[dict-item]
    "Decimal": Decimal,  # type: ignore[dict-item]
    "exception": lambda secret: str(ValueError(secret)),
    "exception of two": lambda secret: str(ValueError("token", secret)),
    "write": lambda secret: io.StringIO().write(secret),  # type: ignore[arg-type]
}


# At least a word long: a single letter stands in any text.
VALUES = st.text(st.characters(codec="utf-8"), min_size=12, max_size=60).map(lambda text: f"c4n4ry{text}")


def shown(produced: object) -> str:
    """Return all that can be read off what was produced, or off the error instead of it."""
    if isinstance(produced, bytes):
        return produced.decode("utf-8", "replace")
    if isinstance(produced, BaseException):
        return f"{produced} {produced!r} " + "".join(traceback.format_exception(produced))
    return produced if isinstance(produced, str) else repr(produced)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@settings(max_examples=20)  # for each of some seventy ways
@given(value=VALUES)
@example(value="c4n4ry-hunter2")
def test_no_way_of_showing_a_secret_shows_its_value(way: Callable[[Secret], object], value: str) -> None:
    secret = Secret("token", value)
    try:
        produced = way(secret)
    except (TypeError, AttributeError, ValueError) as error:
        produced = error
    assert "c4n4ry" not in shown(produced)
    assert secret.reveal() == value


REFUSED = {
    "str", "format", "f-string", "f-string !s", "json", "pickle", "copy", "deepcopy", "hash", "convert", "vars",
    "convert of a holder", "attrs equality", "attrs hash", "getstate", "reduce", "length", "membership", "bytes",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_would_write_or_compare_it_is_an_error(name: str) -> None:
    with pytest.raises(TypeError):
        WAYS[name](Secret("token", "c4n4ry-hunter2"))


@pytest.mark.parametrize(
    "compare",
    [
        lambda secret, other: secret == other,
        lambda secret, other: other == secret,
        lambda secret, other: secret != other,
        lambda secret, other: secret < other,
        lambda secret, other: secret in [other],
    ],
    ids=["==", "== from the left", "!=", "<", "in a list"],
)
@pytest.mark.parametrize(
    "other", ["c4n4ry-hunter2", Secret("token", "c4n4ry-hunter2"), None], ids=["text", "another", "None"]
)
def test_a_secret_is_compared_with_nothing(compare: Callable[[object, object], object], other: object) -> None:
    with pytest.raises(TypeError, match="only reveal"):
        compare(Secret("token", "c4n4ry-hunter2"), other)


BROKEN = st.sampled_from([b"\xff", b"\n\xfe", b"x" * MOST_BYTES])


@given(VALUES, BROKEN)
def test_no_error_about_a_secret_shows_what_was_found(value: str, broken: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:  # mode 0600
        file.write(value.encode() + broken)
        file.flush()
        source = SecretSource(backend=Backend.FILE, path=Path(file.name))
        with pytest.raises(Exception, match="secret token") as caught:
            SecretStore({"token": source}, environment={}).get("token")
    text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    ours = text[text.index("in get\n") :]  # the frames of the store, not this one, which knows the value
    assert "c4n4ry" not in ours
    assert "SecretStore" in ours
