"""Reads every manifest list and each distinct manifest of a table with PyIceberg, and prints one line of JSON.

    pyiceberg_live_files.py <metadata.json>

PyIceberg has no operation that finds dead files: this is only the reading that one would need. Imports aren't timed.
"""

import json
import resource
import sys
import time

from pyiceberg.table import StaticTable


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def live_files(metadata_file):
    table = StaticTable.from_metadata(metadata_file)
    manifests = {}
    for snapshot in table.metadata.snapshots:
        manifests.update((manifest.manifest_path, manifest) for manifest in snapshot.manifests(table.io))
    return {
        entry.data_file.file_path
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def main():
    wall, cpu = time.monotonic(), cpu_seconds()
    count = len(live_files(sys.argv[1]))
    wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, "live files": count}))


main()
