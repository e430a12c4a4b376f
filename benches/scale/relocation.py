"""Copies of Java classes under another package name, as Iceberg's own build makes them of its JSON library.

Iceberg's runtime jar refers to Jackson below `org.apache.iceberg.shaded`; the jar of some packages lacks these classes.
"""

import re
import struct
import zipfile

PACKAGE, SHADED = "com/fasterxml/jackson", "org/apache/iceberg/shaded/com/fasterxml/jackson"

# The size of each kind of constant behind its tag (class file format, section 4.4); a string (1) has its own length.
CONSTANT_SIZES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
STRING = 1
TWO_SLOTS = (5, 6)


def has_shaded_jackson(jar):
    with zipfile.ZipFile(jar) as classes:
        return f"{SHADED}/core/JsonFactory.class" in classes.NameToInfo


def relocate_jackson(jars, result):
    """Writes a jar with the classes of `jars` below the shaded name."""
    partial = result.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as out:
        for jar in jars:
            with zipfile.ZipFile(jar) as classes:
                for name in classes.namelist():
                    if name.startswith(PACKAGE) and name.endswith(".class"):
                        out.writestr(name.replace(PACKAGE, SHADED, 1), _relocate_class(classes.read(name)))
    partial.rename(result)


def _relocate_class(data):
    count = struct.unpack_from(">H", data, 8)[0]
    result, at, slot = [data[:10]], 10, 1
    while slot < count:
        tag = data[at]
        if tag == STRING:
            length = struct.unpack_from(">H", data, at + 1)[0]
            text = _relocate_text(data[at + 3 : at + 3 + length])
            result.append(struct.pack(">BH", tag, len(text)) + text)
            at += 3 + length
        else:
            result.append(data[at : at + 1 + CONSTANT_SIZES[tag]])
            at += 1 + CONSTANT_SIZES[tag]
        slot += 2 if tag in TWO_SLOTS else 1
    return b"".join([*result, data[at:]])


def _relocate_text(text):
    return re.sub(rb"com([/.])fasterxml\1jackson", rb"org\1apache\1iceberg\1shaded\1com\1fasterxml\1jackson", text)
