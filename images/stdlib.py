"""What of the standard library goes into an image: tables, and one question to them. Pure.

Left out is what is listed, so that what nobody has thought of stays. A test follows every import of each role
through what its image holds; where one leads to a part that is not there, IN_VAIN says why that is right.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

LEFT_OUT_DIRECTORIES = frozenset({
    "__pycache__", "__phello__", "curses", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3",
    "pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo", "venv",
})  # fmt: skip
"""Of every image: tests, programs with windows, and what installs packages."""

LEFT_OUT_MODULES = frozenset(
    {"__hello__", "_distutils_system_mod", "antigravity", "sitecustomize", "this", "turtle", "usercustomize"}
)

LEFT_OUT_EXTENSIONS = (
    "_ctypes_test", "_curses", "_dbm", "_gdbm", "_test", "_tkinter", "_xx", "nis", "ossaudiodev", "readline", "xx",
)  # fmt: skip
"""Beginnings of extension modules that are tests, or that would bring a library along for nothing."""

PARTS = {
    "tls": ("ssl", "_ssl", "_hashlib"),
    "ctypes": ("ctypes", "_ctypes"),
    "sqlite": ("sqlite3", "_sqlite3"),
    "asyncio": ("asyncio", "_asyncio", "asyncore", "asynchat"),
    "processes": ("multiprocessing", "_multiprocessing", "_posixshmem", "concurrent.futures.process"),
    "xml": ("xml", "xmlrpc", "pyexpat", "_elementtree", "plistlib"),
    "protocols": (
        "cgi", "cgitb", "ftplib", "http.server", "imaplib", "mailbox", "mailcap", "nntplib", "poplib", "smtpd",
        "smtplib", "socketserver", "telnetlib", "webbrowser", "wsgiref", "xdrlib",
    ),
    "archives": ("tarfile", "zipapp", "bz2", "_bz2", "lzma", "_lzma"),
    "development": (
        "_lsprof", "_pyrepl", "bdb", "cProfile", "code", "codeop", "compileall", "cmd", "doctest", "modulefinder",
        "pdb", "pickletools", "profile", "pstats", "pyclbr", "pydoc", "rlcompleter", "symtable", "tabnanny", "timeit",
        "trace", "unittest",
    ),
    "doubles": ("_pydatetime", "_pydecimal", "_pyio"),
    "codecs": (
        "_codecs_*", "encodings.big5*", "encodings.cp[0-9]*", "encodings.euc_*", "encodings.gb*",
        "encodings.hp_roman8", "encodings.hz", "encodings.iso*", "encodings.johab", "encodings.koi8_*",
        "encodings.kz1048", "encodings.mac_*", "encodings.palmos",
        "encodings.ptcp154", "encodings.shift_jis*", "encodings.tis_620",
    ),
    "odds": (
        "_crypt", "aifc", "audioop", "chunk", "colorsys", "crypt", "dbm", "imghdr", "pipes", "shelve", "sndhdr",
        "spwd", "sunau", "uu", "wave",
    ),
}  # fmt: skip
"""Part -> its modules, those below them included. An image has a part if roles.toml names it there."""

WHY = {
    "tls": "OpenSSL; who dials no TLS does without, and the interpreter has hashes of its own",
    "ctypes": "calls into any library; what a role needs of the kernel, `os` and `socket` have",
    "sqlite": "a database",
    "asyncio": "roles use threads",
    "processes": "roles use threads, and start no program",
    "xml": "parsers for a format that no role reads",
    "protocols": "clients and servers of other protocols, a browser's control",
    "archives": "compressed archives",
    "development": "debuggers, profilers, tests, interactive use",
    "doubles": "modules that exist a second time, compiled",
    "codecs": "code pages; roles read and write UTF-8",
    "odds": "sounds, pictures, passwords of the system, small databases",
}

IN_VAIN = {
    ("_ios_support", "ctypes"): "on iOS",
    ("concurrent.futures", "processes"): "loaded when somebody asks for a pool of processes",
    ("datetime", "doubles"): "instead of the compiled one",
    ("decimal", "doubles"): "instead of the compiled one",
    ("difflib", "development"): "when it is run as a program",
    ("encodings.bz2_codec", "archives"): "a codec that nothing asks for",
    ("hashlib", "tls"): "takes the interpreter's own hashes then",
    ("heapq", "development"): "when it is run as a program",
    ("hmac", "tls"): "takes the interpreter's own hashes then",
    ("http.client", "tls"): "has no HTTPS then",
    ("io", "doubles"): "instead of the compiled one",
    ("pickle", "development"): "when it is run as a program",
    ("platform", "ctypes"): "on iOS",
    ("platform", "xml"): "the version of macOS",
    ("requests", "tls"): "tries, and goes on without",
    ("shutil", "archives"): "tries, and goes on without; tarfile when an archive is unpacked",
    ("traceback", "development"): "to colour what stands in a terminal",
    ("typing_extensions", "asyncio"): "to mark a coroutine as deprecated",
    ("urllib.request", "protocols"): "for FTP",
    ("urllib.request", "tls"): "tries, and goes on without",
    ("urllib3", "tls"): "tries, and goes on without",
    ("zipfile", "archives"): "tries, and goes on without",
}
"""(Module that is in an image, or the package above it; part that is not) -> when it asks for it."""

WHOLE = frozenset(PARTS)


def wanted(path: Path, parts: Iterable[str]) -> bool:
    """Return whether an image with these parts has the file; `path` is that below the library's directory."""
    if LEFT_OUT_DIRECTORIES.intersection(path.parts[:-1]) or path.parts[0].startswith("config-"):
        return False
    if path.suffix == ".so" and path.name.startswith(LEFT_OUT_EXTENSIONS):
        return False
    name = module(path)
    return name not in LEFT_OUT_MODULES and part_of(name) in {None, *parts}


def module(path: Path) -> str:
    """Return the dotted name under which a file of the standard library is imported."""
    if path.suffix == ".so":
        return path.name.partition(".")[0]
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(name: str) -> str | None:
    """Return the part that a module belongs to; None: every image has it."""
    for part, modules in PARTS.items():
        if any(fnmatchcase(name, each) or name.startswith(f"{each}.") for each in modules):
            return part
    return None
