"""Makes, changes and reads tables with PyIceberg for the tests: one JSON request a line, one JSON answer a line.

A request names an operation (a function below), the properties of a catalog and the table; an answer has `error` when the
operation failed. Catalogs are connected to once.
"""

import json
import sys
import time
import traceback
from functools import lru_cache

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

import stores

CATALOGS = {}


def connect(properties):
    key = json.dumps(properties, sort_keys=True)
    if key not in CATALOGS:
        try:
            CATALOGS[key] = load_catalog("lake", **properties)
        except Exception:
            # Two processes that make the tables of an SQL catalog at the same moment.
            time.sleep(0.5)
            CATALOGS[key] = load_catalog("lake", **properties)
    return CATALOGS[key]


def rows(first, count):
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def location_of(catalog, table):
    """Where to put a table if the catalog isn't to choose."""
    return f"{catalog['tables']}/{table.replace('.', '/')}" if "tables" in catalog else None


def create(catalog, table, bucket=None):
    """A table with four snapshots. Of the first's file nothing is left since the third, which is tagged `keep`; each of the
    others adds a file of ten rows."""
    if bucket:
        store, name, _ = stores.store_of(bucket, catalog)
        store.create_bucket(name)
    connected = connect(catalog)
    try:
        connected.create_namespace_if_not_exists(table.split(".")[0])
    except NamespaceAlreadyExistsError:
        pass
    created = connected.create_table(table, rows(0, 0).schema, location_of(catalog, table))
    created.append(rows(1, 10))
    created.append(rows(11, 10))
    created.delete("id <= 10")
    created.manage_snapshots().create_tag(created.current_snapshot().snapshot_id, "keep").commit()
    created.append(rows(21, 10))
    return read(catalog, table)


def create_empty(catalog, table, bucket=None):
    """A table without a snapshot."""
    if bucket:
        store, name, _ = stores.store_of(bucket, catalog)
        store.create_bucket(name)
    connected = connect(catalog)
    connected.create_namespace_if_not_exists(table.split(".")[0])
    connected.create_table(table, rows(0, 0).schema, location_of(catalog, table))
    return read(catalog, table)


def append(catalog, table):
    """Ten rows more."""
    loaded = connect(catalog).load_table(table)
    loaded.append(rows(1001, 10))
    return loaded.current_snapshot().snapshot_id


def tag(catalog, table, name, snapshot_id):
    connect(catalog).load_table(table).manage_snapshots().create_tag(snapshot_id, name).commit()


def read(catalog, table):
    """What the table is now, and every file that each of its snapshots needs."""
    loaded = connect(catalog).load_table(table)
    metadata = loaded.metadata
    manifests = lru_cache(None)(lambda manifest: tuple(
        entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=True)
    ))
    needed = {}
    for snapshot in metadata.snapshots:
        files = {snapshot.manifest_list}
        for manifest in snapshot.manifests(loaded.io):
            files.add(manifest.manifest_path)
            files.update(manifests(manifest))
        needed[str(snapshot.snapshot_id)] = sorted(files)
    current = metadata.current_snapshot_id
    return {
        "location": loaded.location(),
        "uuid": str(metadata.table_uuid),
        "current": current,
        "ids": sorted(loaded.scan().to_arrow().column("id").to_pylist()) if current else [],
        "refs": {name: ref.snapshot_id for name, ref in metadata.refs.items()},
        "snapshots": [snapshot.snapshot_id for snapshot in metadata.snapshots],
        "needed": needed,
        "metadata": [loaded.metadata_location] + [entry.metadata_file for entry in metadata.metadata_log],
    }


def files(catalog, table, location):
    """Everything that lies below the location, whether or not the table knows it."""
    return stores.keys_below(location, catalog)


def put(catalog, table, locations):
    stores.put_all(locations, catalog)


def put_many(catalog, table, location, count):
    stores.put_all([f"{location}/data/orphan-{number:05}.parquet" for number in range(count)], catalog)


def create_view(catalog, table, name):
    """A view of the table beside it. PyIceberg makes none in Glue; there Glue's own client does."""
    namespace = table.split(".")[0]
    connected = connect(catalog)
    if catalog["type"] == "glue":
        view = {"Name": name, "TableType": "VIRTUAL_VIEW", "ViewOriginalText": "SELECT 1", "Parameters": {}}
        connected.glue.create_table(DatabaseName=namespace, TableInput=view)
        return
    query = SQLViewRepresentation(type="sql", sql=f"SELECT * FROM {table}", dialect="spark")
    version = ViewVersion(
        version_id=1,
        timestamp_ms=int(time.time() * 1000),
        schema_id=0,
        summary={},
        default_namespace=[namespace],
        representations=[query],
    )
    connected.create_view(f"{namespace}.{name}", connected.load_table(table).schema(), version)


def sql(catalog, table, statements):
    """Runs statements in the database of an SQL catalog."""
    from sqlalchemy import text

    with connect(catalog).engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


OPERATIONS = {
    operation.__name__: operation for operation in [create, create_empty, append, tag, read, files, put, put_many, create_view, sql]
}

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"result": OPERATIONS[request.pop("operation")](**request)}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
