"""Runs one EXECUTE statement of ClickHouse on a table, in this process, and prints one line of JSON.

    clickhouse_statement.py <table folder> <statement>

Only the statement is timed: neither the start of Python, nor loading the library, nor attaching the table.
"""

import json
import os
import resource
import sys
import time

import chdb.session

GATES = (
    "SET allow_insert_into_iceberg = 1, allow_experimental_expire_snapshots = 1, allow_iceberg_remove_orphan_files = 1"
)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    folder, statement = sys.argv[1:]
    os.chdir(folder)  # it reads no files outside the working folder
    session = chdb.session.Session()
    session.query(GATES)
    session.query(f"CREATE TABLE t ENGINE = IcebergLocal('{folder}')")
    wall, cpu = time.monotonic(), cpu_seconds()
    rows = str(session.query(f"ALTER TABLE t EXECUTE {statement}", "TSV"))
    wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    metrics = {name: int(value) for name, value in (line.split("\t") for line in rows.splitlines())}
    print(json.dumps({"wall": wall, "cpu": cpu, "metrics": metrics}))


main()
