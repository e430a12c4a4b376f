"""The page of results, `docs/benchmarks.md`."""

import os
import platform
import re
from datetime import datetime, timezone

from comparison import GROWTH_LIMIT
from micro import BENCHES, met

HEAD = ["measure", "us, wall / CPU", "peer, wall / CPU", "ratio, wall / CPU", "goal", "met?"]
GOAL = 4
NONE = "–"
SHAPE_WORDS = {"append": ", append only", "merge": ", merged and overwritten", "files": ", half orphans"}
VERDICTS = {(True, True): "yes", (False, False): "no", (True, False): "wall only", (False, True): "CPU only"}


def write(path, session, comparisons, growth, micro):
    """`growth` holds (name, comparison of the small table, of the large one); `micro` is (rows, missing) or None."""
    rows = _peer_rows(comparisons) + _growth_rows(growth) + _both_dry_runs(comparisons)
    sections = [
        _head(session),
        "## Goals\n\n" + _table(HEAD, [row for row in rows if row[GOAL] != NONE]),
        _micro_section(micro),
        "## Other comparisons\n\n" + _table(HEAD[:GOAL], [row[:GOAL] for row in rows if row[GOAL] == NONE]),
        _answers(comparisons, session.missing),
        "## Every contestant\n\n"
        + _table(
            ["measure", "contestant", "rounds", "wall, least … most", "CPU, median", "peak memory"],
            _run_rows(comparisons, growth),
        ),
        METHOD,
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(section for section in sections if section) + "\n"
    path.write_text(text.replace(str(session.folder), "…"))


METHOD = """## How it is measured

- The tables are synthetic, with empty data files, on a local disk. Their files are in the page cache, since a run that
  isn't counted comes first.
- Runs alternate: ours, a peer's, ours, the next peer's. Figures are medians of the rounds. Machines are shared, so CPU
  seconds (user and system, all threads) stand beside wall seconds; "wall only" and "CPU only" say that just one of the
  two ratios meets the goal.
- Ours is the whole process of the release build, from start to end. Of ClickHouse only the statement counts: start of
  the process, loading the library and attaching the table are left out, and so are the imports of PyIceberg.
- Iceberg Java core is measured warm, in one JVM, after three rounds that don't count, with the CPU time of all its
  threads. It has no dry run: it commits to a copy of the metadata, and the files it would delete are collected.
- One run of the Python oracle answers both operations; the row "both dry runs" sets it against the sum of our two.
- A peer whose first run takes longer than the script's `--patience` has one round.
- Peak memory is shown where it is above that of the script, which starts the processes.
- Every answer is compared with the oracle's, and after a real removal the files that are left are counted."""


def _head(session):
    load = " and ".join(f"{load:.1f}" for load in session.loads)
    machine = (
        f"{_cpu_model()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, {platform.system()} {platform.machine()}"
    )
    lines = [
        "# Benchmarks",
        "",
        "Written by `benches/scale/run.py`, which makes the tables and runs everything; see its `--help`.",
        "",
        *(["**Small tables, to try the script: not the sizes of the goals.**", ""] if session.quick else []),
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- command: `{session.command}`",
        f"- machine: {machine}; load average {load} at the start and the end",
        "- versions: " + ", ".join(f"{title} {version}" for title, version in session.versions),
    ]
    return "\n".join(lines)


def _peer_rows(comparisons):
    rows = []
    for comparison in comparisons:
        for key, peer in comparison.peers.items():
            goal = comparison.measure.goals.get(key)
            rows.append(_row(f"{_title(comparison)}: {peer.title}", comparison.us, peer, goal and f"≥ {goal}×"))
    return rows


def _row(title, us, peer, goal):
    if not peer.runs:
        return [title, _times(us.wall, us.cpu), f"not run: {peer.problem}", NONE, goal or NONE, "not run"]
    ratios = (peer.wall / us.wall, peer.cpu / us.cpu)
    verdict = _verdict([ratio >= float(goal.strip("≥ ×")) for ratio in ratios]) if goal else NONE
    return [title, _times(us.wall, us.cpu), _times(peer.wall, peer.cpu), _ratios(*ratios), goal or NONE, verdict]


def _both_dry_runs(comparisons):
    """The oracle against both of our runs on a table, since one run of it gives both answers."""
    rows = []
    by_key = {(comparison.table.name, comparison.measure.operation): comparison for comparison in comparisons}
    for (name, operation), expire in by_key.items():
        orphans = by_key.get((name, "orphans"))
        oracles = [c.peers.get("oracle") for c in (expire, orphans) if c]
        if operation != "expire" or orphans is None or not all(oracle and oracle.runs for oracle in oracles):
            continue
        wall, cpu = expire.us.wall + orphans.us.wall, expire.us.cpu + orphans.us.cpu
        peer_wall = sum(oracle.wall for oracle in oracles) / 2
        peer_cpu = sum(oracle.cpu for oracle in oracles) / 2
        title, ratios = f"both dry runs, {_about(expire.table)}: the Python oracle", (peer_wall / wall, peer_cpu / cpu)
        rows.append([title, _times(wall, cpu), _times(peer_wall, peer_cpu), _ratios(*ratios), NONE, NONE])
    return rows


def _growth_rows(growth):
    rows = []
    for name, small, large in growth:
        files, fewer = large.table.metadata_files, small.table.metadata_files
        title = f"{name}, {files:,} metadata files: ourselves on {fewer:,} ({files / fewer:.1f} times fewer)"
        ratios = (large.us.wall / small.us.wall, large.us.cpu / small.us.cpu)
        verdict = _verdict([ratio <= GROWTH_LIMIT for ratio in ratios])
        times = [_times(large.us.wall, large.us.cpu), _times(small.us.wall, small.us.cpu)]
        rows.append([title, *times, _ratios(*ratios), f"≤ {GROWTH_LIMIT}×", verdict])
    return rows


def _micro_section(micro):
    if micro is None:
        return f"## Parts\n\nNot run: `--micro` runs the benches {', '.join(BENCHES)}."
    rows, missing = micro
    paragraphs = ["## Parts", "From `cargo bench --features benches`."]
    if rows:
        judged = [[*row, met(row[1], row[3], row[4])] for row in rows]
        paragraphs.append(_table(["measure", "us", "peer", "ratio", "goal", "met?"], judged))
    if missing:
        paragraphs.append("\n".join(f"- {sentence}" for sentence in missing))
    return "\n\n".join(paragraphs)


def _answers(comparisons, missing):
    lines = [f"- {_title(comparison)}: {sentence}" for comparison in comparisons for sentence in comparison.differences]
    text = "## Answers\n\nAll answers are the oracle's"
    text += ", but for these:\n\n" + "\n".join(lines) if lines else "."
    if any("ClickHouse" in line for line in lines):
        text += "\n\nClickHouse counts a data file once for each expired manifest that lists it."
    if any("Java" in line for line in lines):
        text += "\n\nIceberg Java goes by DELETED entries. The generator's merges drop some, and such files stay."
    return text + "".join(f"\n\nNot run: {title}, since {reason}." for title, reason in missing)


def _run_rows(comparisons, growth):
    rows = []
    every = list(comparisons) + [comparison for _, small, large in growth for comparison in (small, large)]
    for comparison in every:
        for result in (comparison.us, *comparison.peers.values()):
            if result.runs:
                walls = [run.wall for run in result.runs]
                peak = NONE if result.peak_mb is None else f"{result.peak_mb:.0f} MB"
                spread = f"{_seconds(min(walls))} … {_seconds(max(walls))}"
                rows.append([_title(comparison), result.title, str(len(walls)), spread, _seconds(result.cpu), peak])
    return rows


def _title(comparison):
    return f"{comparison.measure.name}, {_about(comparison.table)}"


def _about(table):
    snapshots, files = table.truth["snapshots"], table.truth["scanned_files"]
    shape = SHAPE_WORDS.get(table.name, "")
    return f"{snapshots:,} snapshots{shape} ({files:,} files)"


def _verdict(met_by):
    return VERDICTS[tuple(met_by)]


def _times(wall, cpu):
    return f"{_seconds(wall)} / {_seconds(cpu)}"


def _seconds(seconds):
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def _ratios(wall, cpu):
    return " / ".join(f"{ratio:.1f}×" if ratio < 100 else f"{ratio:.0f}×" for ratio in (wall, cpu))


def _table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _cpu_model():
    try:
        with open("/proc/cpuinfo") as text:
            return re.search(r"model name\s*:\s*(.*)", text.read())[1].strip()
    except (OSError, TypeError):
        return platform.processor() or "unknown processor"


def _memory_gib():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
