"""Prints what PyIceberg's metadata tables have, as JSON: by table and metadata table its rows, or why there are none.

Arguments: the folder that stands for "/", and the paths of metadata files as they are below it.
"""

import datetime
import decimal
import json
import sys
import uuid

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable


class RootedFileIO(PyArrowFileIO):
    """What lies below a folder."""

    def new_input(self, location):
        path = location.removeprefix("file:")
        return super().new_input(self.properties["root"].rstrip("/") + "/" + path.lstrip("/"))


def plain(value):
    """A value as JSON has it: times in ms since the epoch, bytes in hexadecimal digits, maps as sorted pairs."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return (value - datetime.datetime.fromtimestamp(0, datetime.timezone.utc)) // datetime.timedelta(milliseconds=1)
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):
        return str(value)
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted([plain(key), plain(item)] for key, item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def rows(read):
    try:
        return plain(read().to_pylist())
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"}


class AllSnapshots:
    """Stands for a snapshot that has the manifests of all snapshots, each once."""

    def __init__(self, snapshots):
        self.snapshots = snapshots

    def manifests(self, io):
        return {manifest.manifest_path: manifest for one in self.snapshots for manifest in one.manifests(io)}.values()


def all_entries(inspect):
    """It has no such table: its entries, of all manifests."""
    own = inspect._get_snapshot
    inspect._get_snapshot = lambda _id: AllSnapshots(inspect.tbl.metadata.snapshots)
    try:
        return inspect.entries()
    finally:
        inspect._get_snapshot = own


def main(root, paths):
    properties = {"root": root, "py-io-impl": f"{__name__}.RootedFileIO"}
    tables = {}
    for path in paths:
        try:
            inspect = StaticTable.from_metadata(path, properties=properties).inspect
        except Exception as error:  # noqa: BLE001
            tables[path] = {"error": str(error)}
            continue
        names = ["snapshots", "refs", "history", "metadata_log_entries", "manifests", "files", "entries", "all_files"]
        names += ["all_manifests"]
        read = {name: getattr(inspect, name) for name in names}
        tables[path] = {name: rows(read[name]) for name in names}
        tables[path]["partitions"] = rows(inspect.partitions)
        tables[path]["all_entries"] = rows(lambda inspect=inspect: all_entries(inspect))
        snapshots = [snapshot.snapshot_id for snapshot in inspect.tbl.metadata.snapshots]
        for name in ["files", "entries", "partitions"]:
            read = getattr(inspect, name)
            tables[path][f"{name}_by_snapshot"] = {str(id): rows(lambda id=id: read(id)) for id in snapshots}
    return tables


print(json.dumps(main(sys.argv[1], sys.argv[2:])))
