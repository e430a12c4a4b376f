"""Rows of `cargo bench`: each bench prints lines `goal: <measure> | <us> | <peer> | <ratio> | <goal>`."""

import re
import subprocess

BENCHES = ("decoder", "lists", "listing", "reachability", "metadata")
FIELDS = 5
UNITS = {"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def run(repository):
    """Runs every bench; returns rows of five fields, and sentences about what could not be run."""
    rows, missing = [], []
    for bench in BENCHES:
        print(f"cargo bench {bench}", flush=True)
        command = ["cargo", "bench", "--locked", "--features", "benches", "--bench", bench]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
        found = goal_lines(done.stdout + done.stderr)
        rows += found
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("error")] or ["no message"]
            missing.append(f"bench {bench} failed: {errors[0]}")
        elif not found:
            missing.append(f"bench {bench} printed no line that begins with `goal:`")
    return rows, missing


def goal_lines(text):
    lines = (line.strip() for line in text.splitlines())
    goals = [line.removeprefix("goal:").split("|") for line in lines if line.startswith("goal:")]
    return [[cell.strip() for cell in cells] for cells in goals if len(cells) == FIELDS]


def met(us, ratio, goal):
    """Whether a row meets its goal, by its own numbers: `yes`, `no`, or `see row` where they can't be read.

    A goal such as `≤ 1.35×` is about the ratio, one such as `≤ 250 MB` about our own figure; several are parted by `·`.
    """
    bounds = re.findall(r"(≤|<=|≥|>=)\s*([\d.,]+)\s*(×|x|[kKMG]i?B)?", goal)
    values = (us if bounds and bounds[0][2] in UNITS else ratio).split("·")
    if not bounds or len(bounds) != len(values) or ("N" in goal and "N" not in ratio):
        return "see row"
    verdicts = []
    for (sign, bound, unit), value in zip(bounds, values, strict=True):
        number = re.search(r"([\d.,]+)\s*([kKMG]i?B)?", value)
        if number is None or (unit in UNITS) != (number[2] in UNITS):
            return "see row"
        left, right = _number(number[1]) * UNITS.get(number[2], 1), _number(bound) * UNITS.get(unit, 1)
        verdicts.append(left <= right if sign in ("≤", "<=") else left >= right)
    return "yes" if all(verdicts) else "no"


def _number(text):
    return float(text.replace(",", "").rstrip("."))
