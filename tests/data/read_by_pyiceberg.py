"""Reads a table from a metadata file with PyIceberg and prints what it sees as JSON."""

import json
import sys

from pyiceberg.table import StaticTable

table = StaticTable.from_metadata(sys.argv[1])
rows = table.scan().to_arrow()
print(
    json.dumps(
        {
            "uuid": str(table.metadata.table_uuid),
            "current": table.metadata.current_snapshot_id,
            "snapshots": sorted(snapshot.snapshot_id for snapshot in table.metadata.snapshots),
            "schema": str(table.schema()),
            "rows": rows.num_rows,
            "ids": sorted(rows.column("id").to_pylist()),
            "rows_by_snapshot": {
                str(snapshot.snapshot_id): table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows
                for snapshot in table.metadata.snapshots
            },
        }
    )
)
