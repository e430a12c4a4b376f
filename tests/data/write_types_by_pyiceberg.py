"""Writes a table with columns of all types that PyIceberg can write, and prints the path of its metadata file.

Argument: the folder for the table.
"""

import datetime
import decimal
import math
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

UTC = datetime.timezone.utc

SCHEMA = pa.schema(
    [
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("at", pa.timestamp("us")),
        ("at_utc", pa.timestamp("us", tz="UTC")),
        ("s", pa.string()),
        ("long_text", pa.string()),
        ("bytes", pa.binary()),
        ("fixed", pa.binary(4)),
        ("point", pa.struct([("x", pa.float64()), ("y", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("a.b", pa.int32()),
        ("none", pa.int32()),
    ]
)


def row(sign, text):
    at = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012) + sign * datetime.timedelta(days=30000)
    return {
        "b": sign > 0,
        "i": sign * 2_000_000_000,
        "l": sign * (1 << 60),
        "f": sign * 1.5,
        "d": math.nan if sign > 0 else -0.0,
        "small": sign * decimal.Decimal("1234567.89"),
        "large": sign * decimal.Decimal("123456789012345678.0123456789"),
        "day": at.date(),
        "clock": at.time(),
        "at": at,
        "at_utc": at.replace(tzinfo=UTC),
        "s": text,
        "long_text": text * 40,
        "bytes": bytes([255, 0, 1 + sign]),
        "fixed": bytes([1 + sign] * 4),
        "point": {"x": sign * 0.5, "y": sign},
        "tags": [text],
        "a.b": sign,
        "none": None,
    }


def main(folder):
    catalog = SqlCatalog("types", uri=f"sqlite:///{folder}/types.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.types", schema=SCHEMA)
    table.append(pa.Table.from_pylist([row(-1, "a"), row(1, "é"), row(0, "")], schema=SCHEMA))
    table.append(pa.Table.from_pylist([{"i": 7}], schema=SCHEMA))
    return table.metadata_location


print(main(sys.argv[1]))
