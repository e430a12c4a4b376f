"""Who is measured: this project's binary and its peers. Each runs an operation on a table and tells time and answer.

Operations: `expire` and `orphans` are dry runs, `orphans-real` deletes.
A contestant that isn't there says why; nothing is run in its place.
"""

import json
import shutil
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

import process
from process import Failed, Run
from relocation import has_shaded_jackson, relocate_jackson

DRIVERS = Path(__file__).parent / "drivers"
CONTENT_FILES = (
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
)


def expired_files(metrics):
    """The counts of an expiry, from the metric names that this project, ClickHouse and the oracle share."""
    return {
        "data files": sum(metrics[name] for name in CONTENT_FILES),
        "manifests": metrics["deleted_manifest_files_count"],
        "manifest lists": metrics["deleted_manifest_lists_count"],
    }


def truth(table):
    """Every count that a contestant may tell, as it must be."""
    found = {"orphan files": table.truth["orphans"], "live files": table.truth["distinct_content_files"]}
    return {**expired_files(table.truth), **found}


class Us:
    """The release binary: the whole process, from its start to its end."""

    key, name, title = "us", "iceberg-maintenance", "iceberg-maintenance"
    operations = ("expire", "orphans", "orphans-real")

    def __init__(self, binary):
        self.binary = binary

    def missing(self):
        return None if self.binary.exists() else f"{self.binary} isn't there: run `cargo build --release` first"

    def version(self):
        return process.run([str(self.binary), "--version"])[1].split()[-1]

    def run(self, table, operation):
        if operation == "expire":
            older_than = datetime.fromtimestamp(table.older_than_ms / 1000, timezone.utc).isoformat(
                timespec="milliseconds"
            )
            call = [
                "expire-snapshots",
                str(table.folder),
                "--older-than",
                older_than,
                "--retain-last",
                "1",
                "--dry-run",
            ]
        else:
            call = ["remove-orphan-files", str(table.folder), "--yes" if operation == "orphans-real" else "--dry-run"]
        run, text = process.run([str(self.binary), "--quiet", "--format", "json", *call])
        metrics = {row["metric_name"]: row["metric_value"] for row in json.loads(text)}
        run.answer = (
            expired_files(metrics) if operation == "expire" else {"orphan files": metrics["deleted_files_count"]}
        )
        return run

    def close(self):
        pass


class Oracle:
    """The generator's brute-force reading in Python. One run gives the answers of both operations."""

    key, name, title = "oracle", "the Python oracle", "the Python oracle"
    operations = ("expire", "orphans")

    def __init__(self, generator, installation):
        self.generator, self.installation = generator, installation

    def missing(self):
        return None

    def version(self):
        return f"on fastavro {self.installation.version('fastavro')}"

    def run(self, table, operation):
        run, text = process.run(self.generator.oracle_command(table))
        answer = json.loads(text)
        run.answer = expired_files(answer) if operation == "expire" else {"orphan files": answer["orphans"]}
        return run

    def close(self):
        pass


class ClickHouse:
    """chdb: one statement in a new process. Start of the process and attaching the table are left out."""

    key, name, title = "clickhouse", "ClickHouse", "ClickHouse"
    operations = ("expire", "orphans", "orphans-real")

    def __init__(self, installation):
        self.installation = installation

    def missing(self):
        return None if self.installation.version("chdb") else "the package chdb isn't installed"

    def version(self):
        return f"{self.installation.version('chdb-core')} (chdb {self.installation.version('chdb')})"

    def run(self, table, operation):
        if operation == "expire":
            # It takes no time below which snapshots are old, only a duration.
            seconds = int(time.time() - table.older_than_ms / 1000)
            statement = f"expire_snapshots(retention_period = '{seconds}s', retain_last = 1, dry_run = 1)"
        else:
            statement = f"remove_orphan_files(dry_run = {int(operation == 'orphans')})"
        driver = str(DRIVERS / "clickhouse_statement.py")
        whole, text = process.run([self.installation.python, driver, f"{table.folder}/", statement])
        told = json.loads(text)
        metrics = told["metrics"]
        if operation == "expire":
            answer = expired_files(metrics)
        else:
            answer = {"orphan files": sum(value for name, value in metrics.items() if name.startswith("deleted_"))}
        return Run(told["wall"], told["cpu"], whole.peak_mb, answer)

    def close(self):
        pass


class PyIceberg:
    """It finds no dead files; reading every list and each manifest once is the part that can be compared."""

    key, name, title = "pyiceberg", "PyIceberg", "PyIceberg, reading lists and manifests only"
    operations = ("orphans",)

    def __init__(self, installation):
        self.installation = installation

    def missing(self):
        return None if self.installation.version("pyiceberg") else "the package pyiceberg isn't installed"

    def version(self):
        return self.installation.version("pyiceberg")

    def run(self, table, operation):
        driver = str(DRIVERS / "pyiceberg_live_files.py")
        whole, text = process.run([self.installation.python, driver, str(table.newest_metadata())])
        told = json.loads(text)
        return Run(told["wall"], told["cpu"], whole.peak_mb, {"live files": told["live files"]})

    def close(self):
        pass


class IcebergJava:
    """Iceberg's core library in one JVM that stays, so that what is measured is warm. It has no orphan removal."""

    key, name, title = "java", "Iceberg Java core", "Iceberg Java core, warm"
    operations = ("expire",)
    warm_up_rounds = 3

    def __init__(self, installation, folder):
        self.installation, self.folder = installation, folder
        self.jvm, self.warm_for, self.versions = None, None, None

    def missing(self):
        if not shutil.which("java"):
            return "java isn't installed"
        if not self._jars():
            return "the packages snowpark_connect_deps_iceberg and pyspark, which hold its jars, aren't installed"
        return None

    def version(self):
        self._start()
        return f"{self.versions['iceberg']} (Java {self.versions['java']})"

    def run(self, table, operation):
        self._start()
        if self.warm_for != table.name:
            for _ in range(self.warm_up_rounds):
                self._round(table)
            self.warm_for = table.name
        return self._round(table)

    def close(self):
        if self.jvm:
            self.jvm.stdin.close()
            self.jvm.wait()
            self.jvm = None

    def _round(self, table):
        """Core has no dry run: it commits to a copy of the metadata. The driver is handed the files to delete."""
        copy = self.folder / "java-table"
        table.copy_of_metadata(copy)
        self.jvm.stdin.write(f"{copy} {table.older_than_ms}\n")
        self.jvm.stdin.flush()
        told = self._line()
        return Run(told.pop("wall"), told.pop("cpu"), None, told)

    def _start(self):
        if self.jvm is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            command = ["java", "-cp", self._class_path(), str(DRIVERS / "ExpireRounds.java")]
            log = open(self.folder / "java.log", "w")
            self.jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            self.versions = self._line()

    def _line(self):
        line = self.jvm.stdout.readline()
        if not line:
            raise Failed(f"the JVM ended; its messages are in {self.folder / 'java.log'}")
        return json.loads(line)

    def _jars(self):
        """The runtime jar of Iceberg and the folder of Spark's jars, which bring Hadoop; None if either is missing."""
        iceberg = self.installation.package_folder("snowpark_connect_deps_iceberg")
        spark = self.installation.package_folder("pyspark")
        if iceberg is None or spark is None:
            return None
        return next((iceberg / "jars").glob("iceberg-spark-runtime-*_2.13-*.jar"), None), spark / "jars"

    def _class_path(self):
        iceberg, spark = self._jars()
        paths = [iceberg, spark / "*"]
        if not has_shaded_jackson(iceberg):
            shaded = self.folder / "shaded-jackson.jar"
            if not shaded.exists():
                jackson = [next(spark.glob(f"jackson-{part}-2.*.jar")) for part in ("annotations", "core", "databind")]
                relocate_jackson(jackson, shaded)
            paths.insert(1, shaded)
        return ":".join(map(str, paths))
