"""What is compared, and how: rounds of our run and a peer's in turn, on the same files, with every answer checked."""

import statistics
from dataclasses import dataclass, field

from contestants import truth
from process import Failed


@dataclass(frozen=True)
class Measure:
    """One operation on one table."""

    name: str
    table: str
    operation: str
    goals: dict = field(default_factory=dict)
    """How many times less wall time than a peer it shall take, by the peer's key. Peers without a goal run too."""


MEASURES = (
    Measure("expire dry run", "append", "expire", {"clickhouse": 50, "java": 5, "oracle": 30}),
    Measure("orphan dry run", "append", "orphans", {"clickhouse": 100, "oracle": 30}),
    Measure("expire dry run", "merge", "expire"),
    Measure("orphan dry run", "merge", "orphans"),
    Measure("orphan dry run", "files", "orphans", {"clickhouse": 5}),
    Measure("orphan removal", "files", "orphans-real", {"clickhouse": 5}),
)
# Measured without peers: the second table holds 10 times the metadata files of the first.
GROWTH = (("expire dry run", "expire"), ("orphan dry run", "orphans"))
GROWTH_LIMIT = 11


@dataclass
class Result:
    """All runs of one contestant in one measure."""

    title: str
    runs: list = field(default_factory=list)
    problem: str | None = None
    """Why there are no runs."""

    @property
    def wall(self):
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self):
        return statistics.median(run.cpu for run in self.runs)

    @property
    def peak_mb(self):
        peaks = [run.peak_mb for run in self.runs if run.peak_mb is not None]
        return max(peaks) if peaks else None


@dataclass
class Comparison:
    """Our runs of a measure and those of each peer, by the peer's key."""

    measure: Measure
    table: object
    us: Result
    peers: dict
    differences: list = field(default_factory=list)
    """Sentences about answers that aren't the truth: a peer's are facts to publish, ours are faults."""
    fault: bool = False


def compare(measure, table, us, peers, rounds, patience):
    """Runs one measure. A peer whose first run takes longer than `patience` seconds has that one round only."""
    result = Comparison(measure, table, Result(us.title), {})
    for peer in peers:
        if measure.operation in peer.operations:
            result.peers[peer.key] = Result(peer.title, problem=peer.missing())
    _run(result, us, Result(us.title))  # warms the page cache
    for number in range(rounds):
        for peer in [peer for peer in peers if _has_round(result, peer, number, patience)] or [None]:
            _run(result, us, result.us)
            if peer:
                _run(result, peer, result.peers[peer.key])
    return result


def _has_round(comparison, peer, number, patience):
    result = comparison.peers.get(peer.key)
    return result is not None and not result.problem and (number == 0 or result.runs[0].wall <= patience)


def compare_sizes(name, operation, tables, us, rounds):
    """Runs one operation on a small table and a large one in turn; returns a `Comparison` of ours for each."""
    results = [Comparison(Measure(name, table.name, operation), table, Result(us.title), {}) for table in tables]
    for number in range(rounds + 1):
        for result in results:
            _run(result, us, result.us if number > 0 else Result(us.title))
    return results


def _run(comparison, contestant, result):
    """One run with its answer checked. A peer that fails is named with its message; our failure ends the benchmark."""
    table, operation = comparison.table, comparison.measure.operation
    print(f"  {contestant.title}: ", end="", flush=True)
    try:
        run = contestant.run(table, operation)
    except Failed as failure:
        print(failure, flush=True)
        if contestant.key == "us":
            raise
        result.problem = str(failure)
        result.runs.clear()
        return
    print(f"{run.wall:.3f} s, {run.cpu:.3f} s CPU", flush=True)
    result.runs.append(run)
    expected, answer = truth(table), run.answer.items()
    if operation == "orphans-real":
        _check_files(table, contestant)
    wrong = [f"{name} {count:,} (true: {expected[name]:,})" for name, count in answer if count != expected[name]]
    if wrong:
        comparison.fault |= contestant.key == "us"
        sentence = f"{contestant.title}: {', '.join(wrong)}"
        if sentence not in comparison.differences:
            comparison.differences.append(sentence)


def _check_files(table, contestant):
    """After a real removal: exactly the orphans are gone. They are put back. Raises `Failed`."""
    all_files, orphans = table.truth["scanned_files"], table.truth["orphans"]
    left = table.files()
    table.restore_orphans()
    if left != all_files - orphans or table.files() != all_files:
        folder = table.folder.name
        raise Failed(
            f"{contestant.title} left {left:,} files in {folder}, not {all_files - orphans:,}: remove that folder"
        )
