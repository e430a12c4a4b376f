"""Tables without a catalog, for PyIceberg: versions are named `v<N>.metadata.json`, as Iceberg Java's HadoopCatalog does."""

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import EMPTY_DICT


class HadoopCatalog(MetastoreCatalog, NoopCatalog):
    """Table `a.t` lies in `<warehouse>/a/t`.

    Two writers of this class at once may overwrite each other: on most stores PyIceberg only looks whether a file is there
    before it writes it. The tests let one writer go at a time.
    """

    def folder(self, identifier):
        return "/".join([self.properties["warehouse"].rstrip("/"), *self.identifier_to_tuple(identifier)])

    def newest_version(self, identifier, file_io):
        """The hint, and whatever was committed since; 0 where there is no table."""
        metadata = self.folder(identifier) + "/metadata"
        version = 0
        hint = file_io.new_input(f"{metadata}/version-hint.text")
        if hint.exists():
            with hint.open() as stream:
                version = int(stream.read())
        while file_io.new_input(f"{metadata}/v{version + 1}.metadata.json").exists():
            version += 1
        return version

    def write(self, identifier, metadata, version, file_io):
        folder = self.folder(identifier) + "/metadata"
        location = f"{folder}/v{version}.metadata.json"
        try:
            ToOutputFile.table_metadata(metadata, file_io.new_output(location))
        except FileExistsError as error:
            raise CommitFailedException(f"{location} exists") from error
        with file_io.new_output(f"{folder}/version-hint.text").create(overwrite=True) as stream:
            stream.write(str(version).encode())
        return location

    def create_namespace(self, namespace, properties=EMPTY_DICT):
        pass

    def create_namespace_if_not_exists(self, namespace, properties=EMPTY_DICT):
        pass

    def create_table(
        self,
        identifier,
        schema,
        location=None,
        partition_spec=UNPARTITIONED_PARTITION_SPEC,
        sort_order=UNSORTED_SORT_ORDER,
        properties=EMPTY_DICT,
    ):
        identifier = self.identifier_to_tuple(identifier)
        folder = self.folder(identifier)
        staged = self._create_staged_table(identifier, schema, folder, partition_spec, sort_order, properties)
        self.write(identifier, staged.metadata, 1, staged.io)
        return self.load_table(identifier)

    def load_table(self, identifier):
        identifier = self.identifier_to_tuple(identifier)
        file_io = self._load_file_io(location=self.folder(identifier))
        version = self.newest_version(identifier, file_io)
        if version == 0:
            raise NoSuchTableError(f"there is no table in {self.folder(identifier)}")
        location = f"{self.folder(identifier)}/metadata/v{version}.metadata.json"
        metadata = FromInputFile.table_metadata(file_io.new_input(location))
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(self, table, requirements, updates):
        current = self.load_table(table.name())
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        version = int(current.metadata_location.rsplit("/v", 1)[1].split(".")[0])
        location = self.write(table.name(), staged.metadata, version + 1, staged.io)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=location)
