"""The stores that tables lie in, without Iceberg: what is there, and files that no table knows."""

import base64
import hashlib
import hmac
import http.client
import io
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import boto3
from botocore.config import Config
from pyarrow import fs
from pyiceberg.io import FileIO, InputFile, OutputFile

AT_ONCE = 8


def split(location):
    """Scheme, bucket and key of a location; the key of a local one is its path."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return "file", "", location.removeprefix("file:")
    bucket, _, key = rest.partition("/")
    return (scheme, bucket, key) if scheme != "file" else (scheme, "", "/" + key)


def store_of(location, properties):
    """The store of a location, and the location's bucket and key."""
    scheme, bucket, key = split(location)
    if scheme == "file":
        return LocalFiles(), bucket, key
    if scheme == "gs":
        return gcs(properties["gcs.service.host"]), bucket, key
    if scheme == "abfss":
        return azure(properties["adls.connection-string"]), bucket.split("@")[0], key
    return s3(properties["s3.endpoint"], properties["s3.access-key-id"], properties["s3.secret-access-key"]), bucket, key


def keys_below(location, properties):
    """Every object below a location, as a location."""
    store, bucket, key = store_of(location, properties)
    base = location[: len(location) - len(key)]
    return [base + found for found in store.list(bucket, key.rstrip("/") + "/")]


def put_all(locations, properties):
    """Puts one byte at each location."""
    store, bucket, _ = store_of(locations[0], properties)
    store.put_all(bucket, [split(location)[2] for location in locations])


class LocalFiles:
    def list(self, _, folder):
        return [os.path.join(below, name) for below, _, names in os.walk(folder) for name in names]

    def put_all(self, _, paths):
        for path in paths:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(b"x")


@lru_cache
def s3(endpoint, access_key_id, secret_access_key):
    return S3(endpoint, access_key_id, secret_access_key)


class S3:
    def __init__(self, endpoint, access_key_id, secret_access_key):
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=AT_ONCE),
        )
        # Many small objects: Arrow's client takes a fraction of the processor time.
        self.arrow = fs.S3FileSystem(
            endpoint_override=endpoint,
            access_key=access_key_id,
            secret_key=secret_access_key,
            region="us-east-1",
            allow_delayed_open=True,
        )

    def create_bucket(self, bucket):
        if bucket not in [known["Name"] for known in self.client.list_buckets()["Buckets"]]:
            self.client.create_bucket(Bucket=bucket)

    def list(self, bucket, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def put(self, bucket, key):
        if "//" in key:
            self.client.put_object(Bucket=bucket, Key=key, Body=b"x")
        else:
            with self.arrow.open_output_stream(f"{bucket}/{key}") as stream:
                stream.write(b"x")

    def put_all(self, bucket, keys):
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in threads.map(lambda key: self.put(bucket, key), keys):
                pass


@lru_cache
def gcs(host):
    return Gcs(host)


class Web:
    """A store that is spoken to without a client of its own."""

    def __init__(self, url):
        self.address = urlsplit(url).netloc
        self.connections = threading.local()

    def put_all(self, bucket, keys):
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in threads.map(lambda key: self.put(bucket, key, b"x"), keys):
                pass

    def ask(self, method, target, body=None, headers=None):
        # A connection that was not used for long may be closed by now, and only the answer to a request would tell.
        now = time.monotonic()
        if now - getattr(self.connections, "used_at", 0) > 1:
            self.connections.own = http.client.HTTPConnection(self.address)
        self.connections.used_at = now
        self.connections.own.request(method, target, body, headers or {})
        answer = self.connections.own.getresponse()
        content = answer.read()
        if answer.status == 404:
            raise FileNotFoundError(target)
        if answer.status in (409, 412):
            raise FileExistsError(target)
        if answer.status >= 300:
            raise OSError(f"{method} {target}: {answer.status} {content!r}")
        return answer, content


class Gcs(Web):
    """The part of Cloud Storage's XML API that the stand-in serves."""

    def request(self, method, bucket, key="", query=None, body=None, headers=None):
        target = "/" + bucket + "/" + quote(key) + ("?" + urlencode(query) if query else "")
        return self.ask(method, target, body, headers)

    def put(self, bucket, key, content, overwrite=True):
        self.request("PUT", bucket, key, None, content, {} if overwrite else {"x-goog-if-generation-match": "0"})

    def list(self, bucket, prefix):
        keys, query = [], {"list-type": "2", "prefix": prefix}
        while True:
            page = ElementTree.fromstring(self.request("GET", bucket, query=query)[1])
            keys += [key.text for key in page.iterfind("Contents/Key")]
            following = page.find("NextContinuationToken")
            if following is None:
                return keys
            query["continuation-token"] = following.text


@lru_cache
def azure(connection_string):
    return Azure(connection_string)


class Azure(Web):
    """Blobs of the account that a connection string names. One signature, made here, is for all requests."""

    def __init__(self, connection_string):
        parts = dict(part.split("=", 1) for part in connection_string.split(";"))
        super().__init__(parts["BlobEndpoint"])
        self.account = parts["AccountName"]
        grant = {"sp": "rwdlac", "ss": "b", "srt": "sco", "se": "2099-01-01T00:00:00Z", "sv": "2020-10-02"}
        # Between them are the beginning, the addresses and the protocols that it is for: any.
        signed = [self.account, grant["sp"], grant["ss"], grant["srt"], "", grant["se"], "", "", grant["sv"], ""]
        key = base64.b64decode(parts["AccountKey"])
        signature = hmac.new(key, "\n".join(signed).encode(), hashlib.sha256).digest()
        self.grant = grant | {"sig": base64.b64encode(signature).decode()}

    def request(self, method, container, key="", query=None, body=None, headers=None):
        target = f"/{self.account}/{container}" + (f"/{quote(key)}" if key else "")
        return self.ask(method, target + "?" + urlencode((query or {}) | self.grant), body, headers)

    def create_bucket(self, container):
        try:
            self.request("PUT", container, query={"restype": "container"})
        except FileExistsError:
            pass

    def put(self, container, key, content, overwrite=True):
        headers = {"x-ms-blob-type": "BlockBlob"} | ({} if overwrite else {"If-None-Match": "*"})
        self.request("PUT", container, key, None, content, headers)

    def list(self, container, prefix):
        keys, query = [], {"restype": "container", "comp": "list", "prefix": prefix}
        while True:
            page = ElementTree.fromstring(self.request("GET", container, query=query)[1])
            keys += [name.text for name in page.iterfind("Blobs/Blob/Name")]
            following = page.findtext("NextMarker")
            if not following:
                return keys
            query["marker"] = following


class WebFileIO(FileIO):
    """PyIceberg on these stores: its own clients speak Cloud Storage's JSON API only, and Azure's through many packages."""

    def new_input(self, location):
        return WebFile(location, self.properties)

    new_output = new_input

    def delete(self, location):
        file = location if isinstance(location, WebFile) else self.new_input(location)
        file.store.request("DELETE", file.bucket, file.key)


class WebFile(InputFile, OutputFile):
    def __init__(self, location, properties):
        super().__init__(location)
        self.store, self.bucket, self.key = store_of(location, properties)

    def __len__(self):
        answer, _ = self.store.request("HEAD", self.bucket, self.key)
        return int(answer.headers["Content-Length"])

    def exists(self):
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable=True):
        return io.BytesIO(self.store.request("GET", self.bucket, self.key)[1])

    def create(self, overwrite=False):
        return Upload(self, overwrite)

    def to_input_file(self):
        return self


class Upload(io.BytesIO):
    """Stores what was written when it is closed."""

    def __init__(self, file, overwrite):
        super().__init__()
        self.file = file
        self.overwrite = overwrite

    def close(self):
        if not self.closed:
            content = self.getvalue()
            super().close()
            self.file.store.put(self.file.bucket, self.file.key, content, self.overwrite)
