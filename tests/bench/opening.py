"""How long a session of many records takes to open: a cold loopd, from the message to its being accepted."""

from statistics import median

from tests.bench import report, seed, stack
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.seed import Round
from tests.bench.sizes import Sizes

SESSION = "long"
RECORDS_OF_A_ROUND = 4
LIMIT_SECONDS = 0.5
N_CTX = 65_536


def measure(sizes: Sizes) -> list[Measure]:
    front = seed.front()
    rounds = [
        Round(
            question=f"Question {number}, as long as a short message is.", result=None, answer=f"Answer {number}. " * 5
        )
        for number in range(sizes.stored_records // RECORDS_OF_A_ROUND)
    ]
    with stack.home() as home, stack.program("tests.bench.fake_server", "1", "0") as url, stack.inferproxy(home, url):
        records = seed.store_session(home, SESSION, rounds, front=front)
        taken = []
        for _ in range(sizes.opening_runs):
            with stack.loopd(home, n_ctx=N_CTX):
                taken.append(Owner(home.loop_socket).say("Hello.", session=SESSION).accepted_ms / 1000)
                say(f"{records} records opened in {taken[-1]:.2f} s")
    return [report.below(f"opening a session of {records:,} records", median(taken), "s", LIMIT_SECONDS)]
