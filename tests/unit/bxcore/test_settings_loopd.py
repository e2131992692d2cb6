"""Rules of loopd.toml that its types alone do not say."""

from pathlib import Path

import pytest

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.loopd import LoopdSettings

HEAD = 'state = "/s"\n[listen]\nowner = "/l"\n[infer]\nsocket = "/i"\n'


def load(tmp_path: Path, text: str) -> LoopdSettings:
    path = tmp_path / "loopd.toml"
    path.write_text(HEAD + text)
    return config.load(path, LoopdSettings)


@pytest.mark.parametrize("written", ["0.6", "0", "2", "1.500000", "0.000001", "6e-1"])
def test_a_number_that_can_be_written_out_is_taken(tmp_path: Path, written: str) -> None:
    assert float(load(tmp_path, f"[sampling]\ntemperature = {written}\n").sampling.temperature) == float(written)


@pytest.mark.parametrize(
    "written", ["1e-30000000", "1e-7", "0.0000001", "0.6" + "0" * 6, "0e9999999", "0e1", "2.1", "-1", "inf", "nan"]
)
def test_one_that_would_fill_each_request_or_is_out_of_range_is_not(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match="temperature: expected ") as refused:
        load(tmp_path, f"[sampling]\ntemperature = {written}\n")
    assert ":7: sampling." in refused.value.detail


@pytest.mark.parametrize(("refused", "end"), [(3, 3), (3, 5), (1, 1)])
def test_a_repeated_call_is_refused_before_it_ends_the_turn(tmp_path: Path, refused: int, end: int) -> None:
    limits = load(tmp_path, f"[limits]\nrepeats_refused = {refused}\nrepeats_end = {end}\n").limits
    assert (limits.repeats_refused, limits.repeats_end) == (refused, end)


@pytest.mark.parametrize("text", ["repeats_refused = 6", "repeats_end = 2", "repeats_refused = 5\nrepeats_end = 4"])
def test_a_turn_that_would_end_before_is_a_fault(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=":6: limits: repeats_end is below repeats_refused"):
        load(tmp_path, f"[limits]\n{text}\n")
