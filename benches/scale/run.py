#!/usr/bin/env python3
"""The scale benchmark: whole runs on large tables, ours and those of every peer that is installed.

It makes the tables with `gen_table.py` (once; they are kept in the work folder), runs the release binary and the peers
in turn, compares all answers with a brute-force oracle's, and writes a page of goals, ratios and circumstances.

    cargo build --release
    benches/scale/run.py --install-peers --quick     # a try on small tables, in some minutes
    benches/scale/run.py --micro                     # the published figures, in docs/benchmarks.md

It needs Python 3.11 and, for Iceberg Java, a JDK. Peers come from the Python package index and are installed only with
--install-peers, into the work folder; one that is missing is named on the page.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import comparison
import contestants
import micro
import page
from installation import Installation, default_folder
from process import Failed
from tables import FULL_SIZES, QUICK_SIZES, Generator

REPOSITORY = Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    add = parser.add_argument
    add("--quick", action="store_true", help="small tables, one round, and the page goes to the work folder")
    add("--micro", action="store_true", help="also run the benches of `cargo bench` and take over their rows")
    add("--install-peers", action="store_true", help="install the peers' packages into the work folder")
    add("--rounds", type=int, help="rounds of each comparison (5; 1 with --quick)")
    add(
        "--patience",
        type=float,
        default=30,
        metavar="SECONDS",
        help="a peer whose first run takes longer has one round (%(default)s)",
    )
    add(
        "--tables",
        nargs="+",
        choices=("append", "merge", "files", "size"),
        default=["append", "merge", "files", "size"],
        help="only measure these tables",
    )
    add(
        "--folder",
        type=Path,
        default=default_folder(),
        help="work folder for tables and packages (in the user's cache)",
    )
    add(
        "--binary",
        type=Path,
        default=target / "release" / "iceberg-maintenance",
        help="our binary (of the release build)",
    )
    add(
        "--generator",
        type=Path,
        default=REPOSITORY.parent / "shared" / "tools" / "gen_table.py",
        help="the generator of tables (../shared/tools/gen_table.py beside the clone)",
    )
    add("--output", type=Path, help="where the page goes (docs/benchmarks.md)")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.output = options.output or (
        options.folder / "quick.md" if options.quick else REPOSITORY / "docs" / "benchmarks.md"
    )
    return options


class Session:
    """What the page says of the circumstances."""

    def __init__(self, options, us, peers):
        self.quick, self.folder = options.quick, options.folder
        self.command = _command()
        self.loads = [os.getloadavg()[0]]
        self.missing = [(peer.title, peer.missing()) for peer in peers if peer.missing()]
        revision = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
        commit = subprocess.run(revision, capture_output=True, text=True).stdout.strip() or "unknown commit"
        self.versions = [(us.title, f"{us.version()} ({commit})")]
        self.versions += [(peer.name, peer.version()) for peer in peers if not peer.missing()]
        self.versions.append(("Python", ".".join(map(str, sys.version_info[:3]))))


def _command():
    """The command line without the folders of this machine."""
    shown = [f"…/{Path(word).name}" if word.startswith("/") else word for word in sys.argv[1:]]
    return " ".join(["benches/scale/run.py", *(word if "…" in word else shlex.quote(word) for word in shown)])


def main():
    options = arguments()
    if not options.generator.exists():
        raise Failed(f"the generator of the tables isn't there: {options.generator} (give --generator)")
    installation = Installation(options.folder)
    if options.install_peers:
        installation.install()
    if not installation.version("fastavro"):
        raise Failed("the generator needs the Python package fastavro: run once with --install-peers")

    generator = Generator(str(options.generator), installation.python)
    us = contestants.Us(options.binary)
    if us.missing():
        raise Failed(us.missing())
    peers = [
        contestants.ClickHouse(installation),
        contestants.IcebergJava(installation, options.folder / "java"),
        contestants.Oracle(generator, installation),
        contestants.PyIceberg(installation),
    ]
    try:
        return measure(options, generator, us, peers)
    finally:
        for peer in peers:
            peer.close()


def measure(options, generator, us, peers):
    session = Session(options, us, peers)
    for title, reason in session.missing:
        print(f"not run: {title}, since {reason}")
    sizes = QUICK_SIZES if options.quick else FULL_SIZES

    def table(name):
        return generator.table(name, sizes[name], options.folder / "tables")

    compared = []
    for wanted in comparison.MEASURES:
        if wanted.table in options.tables:
            print(f"{wanted.name}, table {wanted.table}", flush=True)
            compared.append(
                comparison.compare(wanted, table(wanted.table), us, peers, options.rounds, options.patience)
            )
    growth = []
    if "size" in options.tables:
        pair = (table("size-1"), table("size-10"))
        for name, operation in comparison.GROWTH:
            print(f"{name}, tables of two sizes", flush=True)
            growth.append((name, *comparison.compare_sizes(name, operation, pair, us, options.rounds)))
    rows = micro.run(REPOSITORY) if options.micro else None

    session.loads.append(os.getloadavg()[0])
    page.write(options.output, session, compared, growth, rows)
    print(f"wrote {options.output}")
    every = compared + [result for _, *pair in growth for result in pair]
    faults = [sentence for result in every if result.fault for sentence in result.differences]
    for sentence in faults:
        print(f"wrong answer: {sentence}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"error: {failure}")
