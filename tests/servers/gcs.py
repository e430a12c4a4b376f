"""A stand-in for Google Cloud Storage in tests: the part of its XML API that object stores' clients use.

Objects are in memory and have generations; writes take `x-goog-if-generation-match`, listings come in pages. Buckets come
into being when they are written to; one whose name begins with `missing` never does. Usage: gcs.py PORT
"""

import bisect
import email.utils
import hashlib
import itertools
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


class Object:
    """One generation of an object."""

    numbers = itertools.count(1_700_000_000_000_000)

    def __init__(self, content):
        self.content = content
        self.generation = next(Object.numbers)
        self.etag = f'"{hashlib.md5(content).hexdigest()}"'
        self.modified = time.time()


class Bucket:
    """Objects by key, with their keys in order."""

    def __init__(self):
        self.objects = {}
        self.keys = []

    def put(self, key, content):
        if key not in self.objects:
            bisect.insort(self.keys, key)
        self.objects[key] = Object(content)
        return self.objects[key]

    def delete(self, key):
        if self.objects.pop(key, None) is None:
            return False
        self.keys.pop(bisect.bisect_left(self.keys, key))
        return True

    def page(self, prefix, delimiter, after, most):
        """Keys and common prefixes of one page, and where the next one begins."""
        keys, prefixes, last = [], [], after
        at = bisect.bisect_left(self.keys, prefix) if not after else bisect.bisect_right(self.keys, after)
        at = max(at, bisect.bisect_left(self.keys, prefix))
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            key = self.keys[at]
            if len(keys) + len(prefixes) == most:
                return keys, prefixes, last
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                keys.append(key)
                last, at = key, at + 1
            else:
                # The whole folder at once.
                folder = key[: end + len(delimiter)]
                prefixes.append(folder)
                last = folder + "\U0010ffff"
                at = bisect.bisect_left(self.keys, last)
        return keys, prefixes, None


LOCK = threading.Lock()
BUCKETS = {}
UPLOADS = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers go out at once.
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format, *arguments):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", len(body))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self.answer(status, body.encode(), Content_Type="application/xml")

    def target(self):
        url = urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        return unquote(bucket), unquote(key), query

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def put(self, name, key, content):
        """Stores an object and answers, unless another generation is asked for."""
        if name.startswith("missing"):
            return self.fail(404, "NoSuchBucket")
        wanted = self.headers.get("x-goog-if-generation-match")
        with LOCK:
            bucket = BUCKETS.setdefault(name, Bucket())
            current = bucket.objects.get(key)
            refused = wanted is not None and int(wanted) != (current.generation if current else 0)
            stored = None if refused else bucket.put(key, content)
        if refused:
            return self.fail(412, "PreconditionFailed")
        return self.answer(200, ETag=stored.etag, x_goog_generation=stored.generation)

    def do_PUT(self):
        name, key, query = self.target()
        content = self.body()
        if "uploadId" in query:
            UPLOADS[query["uploadId"]][int(query["partNumber"])] = content
            return self.answer(200, ETag='"part"')
        return self.put(name, key, content)

    def do_POST(self):
        name, key, query = self.target()
        self.body()
        if "uploads" in query:
            upload = str(next(Object.numbers))
            UPLOADS[upload] = {}
            body = (
                f"<InitiateMultipartUploadResult><Bucket>{escape(name)}</Bucket><Key>{escape(key)}</Key>"
                f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
            return self.answer(200, body.encode(), Content_Type="application/xml")
        if "uploadId" in query:
            parts = UPLOADS.pop(query["uploadId"])
            return self.put(name, key, b"".join(part for _, part in sorted(parts.items())))
        return self.fail(501, "NotImplemented")

    def do_GET(self):
        name, key, query = self.target()
        if not key:
            return self.list(name, query)
        with LOCK:
            bucket = BUCKETS.get(name)
            found = bucket.objects.get(key) if bucket else None
        if found is None:
            return self.fail(404, "NoSuchKey")
        headers = {
            "ETag": found.etag,
            "x-goog-generation": found.generation,
            "Last-Modified": email.utils.formatdate(found.modified, usegmt=True),
            "Content-Type": "application/octet-stream",
        }
        wanted = self.headers.get("Range")
        if wanted and self.command == "GET":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            size = len(found.content)
            if first:
                begin, end = int(first), min(int(last) + 1, size) if last else size
            else:
                begin, end = max(0, size - int(last)), size
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            return self.answer(206, found.content[begin:end], **headers)
        if self.command == "HEAD":
            # A HEAD tells the length of what it doesn't send.
            self.send_response(200)
            for header, value in (headers | {"Content-Length": len(found.content)}).items():
                self.send_header(header, str(value))
            return self.end_headers()
        return self.answer(200, found.content, **headers)

    do_HEAD = do_GET

    def do_DELETE(self):
        name, key, query = self.target()
        if "uploadId" in query:
            UPLOADS.pop(query["uploadId"], None)
            return self.answer(204)
        with LOCK:
            bucket = BUCKETS.get(name)
            deleted = bucket is not None and bucket.delete(key)
        return self.answer(204) if deleted else self.fail(404, "NoSuchKey")

    def list(self, name, query):
        if name.startswith("missing"):
            return self.fail(404, "NoSuchBucket")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(PAGE, int(query.get("max-keys", PAGE)))
        with LOCK:
            bucket = BUCKETS.get(name) or Bucket()
            keys, prefixes, following = bucket.page(prefix, delimiter, after, most)
            found = [(key, bucket.objects[key]) for key in keys]
        parts = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>"]
        if following is not None:
            parts.append(f"<NextContinuationToken>{escape(following)}</NextContinuationToken>")
        for key, entry in found:
            modified = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.modified))
            parts.append(
                f"<Contents><Key>{escape(key)}</Key><Generation>{entry.generation}</Generation>"
                f"<LastModified>{modified}</LastModified><ETag>{escape(entry.etag)}</ETag>"
                f"<Size>{len(entry.content)}</Size></Contents>"
            )
        parts += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in prefixes]
        parts.append("</ListBucketResult>")
        self.answer(200, "".join(parts).encode(), Content_Type="application/xml")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
