"""`make demo` from its first word to its last, in a home of its own."""

import re
import subprocess
import sys

from deploy.local import toolplace, tooluser
from tests.process.launched import ROOT, wait_until_none_runs

DEMO = ROOT / "deploy" / "local" / "demo.py"


# The same for every run: it keeps the containers' storage, which is a hundred megabytes.
HOME = ROOT / ".state" / "container-tests" / "demo"


def test_the_story_comes_out_as_it_is_told() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--home", str(HOME)], capture_output=True, text=True, timeout=280, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "It says: coffee, oat milk, two lemons." in done.stdout
    assert re.search(r"Approval (\d+): may this call run\?.*\1 approved: the call runs now", told, re.DOTALL)
    assert "Bread is on the list." in done.stdout
    assert re.search(r"I was told: error: .*public", done.stdout)
    assert len(re.findall(r"not carried out: .*\bno_grant\b", told)) == 3
    assert "Connections to the listener that nothing may reach: 0" in done.stdout
    assert re.search(r"whole: \d+ records in 1 file", done.stdout)
    assert "0451" not in done.stdout.replace("?0451", "")

    sample = toolplace.choose(HOME, tooluser.find()).shared / "sample"
    assert (sample / "shopping.txt").read_text().startswith("coffee\nbread\n")
    wait_until_none_runs(HOME)
