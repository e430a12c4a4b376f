"""The tables that are measured: made once by the generator, each with the true answers beside it."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from process import Failed

HISTORY = "--snapshots {snapshots} --entries 10"
# A compaction every 50 snapshots keeps manifest lists and live files at one size: all costs are linear in the history.
STEADY_HISTORY = "--snapshots {snapshots} --manifests 5 --entries 10 --merge-at 0 --compact-every 50"


@dataclass(frozen=True)
class Shape:
    """How a table is generated."""

    about: str
    arguments: str
    """Of `gen_table.py build`, with sizes to fill in."""

    def sized(self, **sizes):
        return self.arguments.format(**sizes).split()


SHAPES = {
    "append": Shape("append only, no manifest is ever merged", f"{HISTORY} --merge-at 0"),
    "merge": Shape(
        "every third snapshot overwrites, many manifests are merged into one",
        f"{HISTORY} --merge-at {{merge_at}} --overwrite-every 3",
    ),
    "files": Shape(
        "many files in 10 snapshots, half of them orphans",
        "--snapshots 10 --entries {entries} --orphans {orphans}",
    ),
    "size-1": Shape("a compaction every 50 snapshots", STEADY_HISTORY),
    "size-10": Shape("the same history, 10 times as long", STEADY_HISTORY),
}

FULL_SIZES = {
    "append": {"snapshots": 1000},
    "merge": {"snapshots": 1000, "merge_at": 100},
    "files": {"entries": 5000, "orphans": 50_000},
    "size-1": {"snapshots": 401},
    "size-10": {"snapshots": 4010},
}
QUICK_SIZES = {
    "append": {"snapshots": 100},
    "merge": {"snapshots": 100, "merge_at": 20},
    "files": {"entries": 500, "orphans": 5000},
    "size-1": {"snapshots": 101},
    "size-10": {"snapshots": 1010},
}


@dataclass
class Table:
    """A table on disk, and what is true of it."""

    name: str
    folder: Path
    arguments: list
    older_than_ms: int
    """The age limit of every expiry: halfway between two snapshots, so that the answer is the same on any later day."""
    truth: dict
    """The oracle's answer; the paths of `orphan_list` are relative to the table."""
    made: dict
    """How many files of each kind the generator wrote."""

    @property
    def metadata_files(self):
        """Distinct manifests and manifest lists."""
        return self.truth["distinct_manifests"] + self.truth["snapshots"]

    def files(self):
        return sum(len(names) for _, _, names in os.walk(self.folder))

    def newest_metadata(self):
        return max(
            (self.folder / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0])
        )

    def copy_of_metadata(self, folder):
        """A folder with the newest metadata.json and the version hint, and no other file of the table."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "metadata").mkdir(parents=True)
        for path in (self.newest_metadata(), self.folder / "metadata" / "version-hint.text"):
            shutil.copy(path, folder / "metadata")

    def restore_orphans(self):
        """Makes the orphans that a run removed again, empty and old as they were."""
        old = time.time() - 10 * 24 * 3600
        for relative in self.truth["orphan_list"]:
            path = self.folder / relative
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.utime(path, (old, old))


class Generator:
    """`gen_table.py`, with a Python that has fastavro."""

    def __init__(self, script, python):
        self.script, self.python = script, python

    def oracle_command(self, table):
        return [
            self.python,
            self.script,
            "oracle",
            "--table",
            str(table.folder),
            "--older-than-ms",
            str(table.older_than_ms),
        ]

    def table(self, name, sizes, folder):
        """The table of this shape and size: the one that is there, or a new one. Raises `Failed`."""
        shape = SHAPES[name]
        size = "-".join(str(size) for size in sizes.values())
        table = Table(name, folder / f"{name}-{size}", shape.sized(**sizes), 0, {}, {})
        record = table.folder.with_suffix(".json")
        known = json.loads(record.read_text()) if record.exists() else {}
        if known.get("arguments") != table.arguments:
            print(f"making {table.folder.name}: {shape.about}", flush=True)
            known = self._build(table)
            record.write_text(json.dumps(known))
        table.older_than_ms, table.truth, table.made = known["older_than_ms"], known["truth"], known["made"]
        return table

    def _build(self, table):
        built = self._json([self.python, self.script, "build", "--force", "--out", str(table.folder), *table.arguments])
        snapshots = json.loads(table.newest_metadata().read_text())["snapshots"]
        times = [snapshot["timestamp-ms"] for snapshot in snapshots]
        first_kept = len(times) * 5 // 6
        table.older_than_ms = (times[first_kept - 1] + times[first_kept]) // 2
        truth = self._json([*self.oracle_command(table), "--lists"])
        prefix = f"{table.folder}/"
        truth["orphan_list"] = [path.removeprefix(prefix) for path in truth["orphan_list"]]
        del truth["delete"], truth["retained_ids"]
        return {
            "arguments": table.arguments,
            "older_than_ms": table.older_than_ms,
            "truth": truth,
            "made": built["files"],
        }

    def _json(self, command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"the generator failed: {done.stderr.strip().splitlines()[-1:]}")
        return json.loads(done.stdout.splitlines()[-1])
