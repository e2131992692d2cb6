"""The limits of the tools' programs stand in docs/tools.md."""

from pathlib import Path

import pytest

from toolkit import contract, editfile, listdirectory, readfile, searchfiles, shell, textfile

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
MIB = 1024 * 1024

SAID = {
    "read_file": [
        f"more than {readfile.MOST_LINE_CHARS:,}\ncharacters",
        f"first {textfile.MOST_BYTES // MIB} MiB of a file",
        "its first 64 KiB",
    ],
    "edit_file": [f"files over {editfile.MOST_BYTES // MIB} MiB"],
    "list_directory": [f"at most {listdirectory.MOST_SHOWN} shown", f"After {listdirectory.MOST_NAMES:,} names"],
    "search_files": [
        f"most {searchfiles.MOST_HITS_A_FILE} hits a file and {searchfiles.MOST_HITS} in all",
        f"{searchfiles.MOST_FILES:,} files, {searchfiles.MOST_BYTES // MIB} MiB, {searchfiles.MOST_SECONDS} seconds",
        f"{searchfiles.MOST_NAMES:,} names in one directory",
        f"of one file the first {searchfiles.MOST_FILE_BYTES // MIB} MiB",
    ],
    "shell": [f"has written {shell.MOST_OUTPUT_BYTES // MIB} MiB", *(f"`{name}`" for name in shell.ENVIRONMENT)],
    "The contract": [
        f"exit code {contract.DONE}: done. {contract.OWN_ERROR}: the tool's own",
        f"{contract.MISUSE}: not an",
    ],
}


@pytest.mark.parametrize(("heading", "said"), SAID.items(), ids=SAID.keys())
def test_every_limit_stands_on_the_page(heading: str, said: list[str]) -> None:
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert [words for words in said if words not in text] == []
