"""What `make chat` runs."""

from pathlib import Path

from deploy.local import plan
from deploy.local.home import Home

HOME = Home(Path("/home/a/.state"))


def test_the_small_model_is_hindered_from_repeating_itself() -> None:
    argv = plan.model_server(HOME, None).argv
    assert argv[-2:] == ("--repeat-penalty", plan.SMALL_MODEL_PENALTY)


def test_another_model_is_served_as_it_is() -> None:
    argv = plan.model_server(HOME, Path("/m.gguf")).argv
    assert argv[-2:] == ("--model", "/m.gguf")
    assert "--repeat-penalty" not in argv
