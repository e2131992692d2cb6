"""How much is measured: enough for figures that can be repeated, or just enough to see that the bench works."""

import attrs


class Unmeasurable(Exception):
    """The figure could not be taken; the text says why. No row is reported then."""


@attrs.frozen(kw_only=True)
class Sizes:
    """Counts of turns, pairs, rounds and runs; bytes where the name says so."""

    turns: int = 50
    turns_of_a_variant: int = 8
    latency_pairs: int = 40
    stream_rounds: int = 4
    stream_events: int = 1_500
    slow_stream_rounds: int = 2
    slow_stream_events: int = 150
    proxy_bytes: int = 256 * 1024 * 1024
    proxy_rounds: int = 7
    proxy_pairs: int = 300
    help_runs: int = 15
    starts: int = 7
    footprint_turns: int = 1_000
    stored_records: int = 10_000
    opening_runs: int = 5
    audit_appends: int = 300
    audit_passes: int = 3
    audit_file_records: int = 500_000
    audit_year_records: int = 1_000_000
    call_pairs: int = 30
    container_pairs: int = 15
    decisions: int = 3_000
    decision_rounds: int = 3
    broker_starts: int = 3
    denials: int = 800
    remembered_calls: int = 50
    role_starts: int = 5
    cold_starts: int = 2
    gateway_posts: int = 60
    gateway_backlog: int = 10_000


QUICK = Sizes(
    turns=6,
    turns_of_a_variant=4,
    latency_pairs=6,
    stream_rounds=2,
    stream_events=400,
    slow_stream_rounds=1,
    slow_stream_events=50,
    proxy_bytes=32 * 1024 * 1024,
    proxy_rounds=3,
    proxy_pairs=40,
    help_runs=3,
    starts=2,
    footprint_turns=200,
    opening_runs=2,
    audit_appends=40,
    audit_passes=1,
    audit_file_records=30_000,
    audit_year_records=36_500,
    call_pairs=6,
    container_pairs=3,
    decisions=1_000,
    decision_rounds=2,
    broker_starts=1,
    denials=100,
    remembered_calls=5,
    role_starts=1,
    cold_starts=1,
    gateway_posts=8,
    gateway_backlog=1_000,
)

BIG = Sizes(audit_file_records=5_000_000)
"""What takes gigabytes of disk and minutes, and shows that nothing grows with it."""
