"""nix/roles.json and deploy/quadlet/files are what nix/roles.nix says, and a stale one is named."""

import json
import shutil
from pathlib import Path

import pytest

from bxcore import wiring
from deploy import generate

NIX = pytest.mark.skipif(
    shutil.which("nix-instantiate") is None, reason="Nix is not installed; deploy/local/setup.sh gate brings it"
)


@NIX
def test_the_wirings_json_form_is_its_nix_form() -> None:
    assert generate.JSON.read_text(encoding="utf-8") == generate.evaluated(generate.NIX), generate.COMMAND


@NIX
def test_nix_is_asked_the_same_in_any_directory(tmp_path: Path) -> None:
    moved = tmp_path / "roles.nix"
    shutil.copy(generate.NIX, moved)
    assert generate.evaluated(moved) == generate.evaluated(generate.NIX)


@NIX
@pytest.mark.parametrize("text", ["{ a = ; }", "{ a = b; }", '{ a = throw "no"; }'])
def test_what_does_not_evaluate_is_no_half_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.nix").write_text(text)
    with pytest.raises(generate.NotEvaluated, match=r"error"):
        generate.evaluated(tmp_path / "bad.nix")


def test_without_nix_the_command_that_brings_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(generate.NotEvaluated, match=r"setup\.sh gate"):
        generate.evaluated(generate.NIX)


def test_the_files_of_hosts_without_nixos_are_made_from_the_json_form() -> None:
    wanted = generate.units(generate.JSON.read_text(encoding="utf-8"))
    assert [str(path) for path in generate.stale(wanted)] == [], generate.COMMAND


def test_the_json_form_is_a_wiring_in_the_one_form_that_it_is_kept_in() -> None:
    text = generate.JSON.read_text(encoding="utf-8")
    assert set(wiring.read(text.encode()).roles) == {path.parent.name for path in _mains()}
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _mains() -> list[Path]:
    # Daemons: what has a main program and a settings file.
    return [
        path
        for path in (generate.ROOT / "python").glob("*/__main__.py")
        if (generate.ROOT / "deploy" / "example" / f"{path.parent.name}.toml").exists()
    ]


@pytest.fixture
def kept(tmp_path: Path) -> tuple[dict[Path, str], Path]:
    top = tmp_path / "files"
    wanted = {top / "a.container": "a\n", top / "etc" / "b.conf": "b\n"}
    generate.write(wanted, units_in=top)
    return wanted, top


def test_what_was_written_is_not_stale(kept: tuple[dict[Path, str], Path]) -> None:
    wanted, top = kept
    assert list(generate.stale(wanted, units_in=top)) == []


def test_an_edited_a_missing_and_an_unknown_file_are_stale(kept: tuple[dict[Path, str], Path]) -> None:
    wanted, top = kept
    (top / "a.container").write_text("edited\n")
    (top / "etc" / "b.conf").unlink()
    (top / "c.container").write_text("a role that is no more\n")
    assert {path.name for path in generate.stale(wanted, units_in=top)} == {"a.container", "b.conf", "c.container"}
    generate.write(wanted, units_in=top)
    assert list(generate.stale(wanted, units_in=top)) == []
    assert not (top / "c.container").exists()


@NIX
def test_the_command_names_the_stale_file_and_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = generate.UNITS / "etc" / "sysusers.d" / "boxmaker.conf"
    monkeypatch.setattr(generate, "units", lambda text: {stale: "something else\n"})
    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "stale: deploy/quadlet/files/etc/sysusers.d/boxmaker.conf" in said
    assert "make generate" in said
