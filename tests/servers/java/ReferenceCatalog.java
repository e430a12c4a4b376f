package org.apache.iceberg.rest;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import org.apache.iceberg.BaseMetastoreCatalog;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.ErrorResponseParser;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * An Iceberg REST catalog for tests: the server side of Iceberg Java (CatalogHandlers) behind the JDK's HTTP server, with
 * tables on the local disk, or where their creator puts them: in S3, too, if it asks for no signatures. It needs the Iceberg
 * jar and nothing else: pointers are in memory, files go through java.io and plain HTTP.
 *
 * <p>Usage: ReferenceCatalog PORT WAREHOUSE [S3-ENDPOINT]
 */
public final class ReferenceCatalog {
  private static final ObjectMapper JSON = RESTObjectMapper.mapper();

  private final Pointers catalog;

  private ReferenceCatalog(String warehouse, FileIO io) {
    this.catalog = new Pointers(warehouse, io);
    catalog.initialize("reference", Map.of());
  }

  public static void main(String[] arguments) throws IOException {
    RESTSerializers.registerAll(JSON);
    FileIO io = new StoreFiles(arguments.length > 2 ? arguments[2] : null);
    ReferenceCatalog reference = new ReferenceCatalog(arguments[1], io);
    InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
    HttpServer server = HttpServer.create(address, 128);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext("/", reference::answer);
    server.start();
  }

  private void answer(HttpExchange exchange) throws IOException {
    int status;
    byte[] body;
    try {
      Object result = route(exchange);
      status = result == null ? 204 : 200;
      body = result == null ? new byte[0] : JSON.writeValueAsBytes(result);
    } catch (Exception e) {
      status = statusOf(e);
      ErrorResponse error =
          ErrorResponse.builder()
              .responseCode(status)
              .withType(e.getClass().getSimpleName())
              .withMessage(String.valueOf(e.getMessage()))
              .build();
      body = ErrorResponseParser.toJson(error).getBytes(StandardCharsets.UTF_8);
    }
    boolean noBody = body.length == 0 || exchange.getRequestMethod().equals("HEAD");
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, noBody ? -1 : body.length);
    if (!noBody) {
      exchange.getResponseBody().write(body);
    }
    exchange.close();
  }

  private Object route(HttpExchange exchange) throws IOException {
    String method = exchange.getRequestMethod();
    String[] path = exchange.getRequestURI().getRawPath().substring(1).split("/");
    if (path.length == 2 && path[1].equals("config")) {
      return ConfigResponse.builder().build();
    }
    if (path.length == 2 && path[1].equals("namespaces")) {
      return method.equals("GET")
          ? CatalogHandlers.listNamespaces(catalog, Namespace.empty())
          : CatalogHandlers.createNamespace(catalog, read(exchange, CreateNamespaceRequest.class));
    }
    if (path.length < 3 || !path[1].equals("namespaces")) {
      throw new NotFoundException("there is no %s here", exchange.getRequestURI().getPath());
    }
    Namespace namespace = Namespace.of(decoded(path[2]).split("\u001f"));
    if (path.length == 3) {
      if (method.equals("HEAD")) {
        CatalogHandlers.namespaceExists(catalog, namespace);
        return null;
      }
      return CatalogHandlers.loadNamespace(catalog, namespace);
    }
    if (!path[3].equals("tables")) {
      throw new NotFoundException("%s are not served here", path[3]);
    }
    if (path.length == 4) {
      return method.equals("GET")
          ? CatalogHandlers.listTables(catalog, namespace)
          : CatalogHandlers.createTable(catalog, namespace, read(exchange, CreateTableRequest.class));
    }
    TableIdentifier table = TableIdentifier.of(namespace, decoded(path[4]));
    if (path.length > 5) {
      return null; // metrics
    }
    switch (method) {
      case "GET":
        return CatalogHandlers.loadTable(catalog, table);
      case "HEAD":
        CatalogHandlers.tableExists(catalog, table);
        return null;
      default:
        return CatalogHandlers.updateTable(catalog, table, read(exchange, UpdateTableRequest.class));
    }
  }

  private static int statusOf(Exception e) {
    if (e instanceof NoSuchTableException || e instanceof NoSuchNamespaceException || e instanceof NotFoundException) {
      return 404;
    }
    if (e instanceof AlreadyExistsException || e instanceof CommitFailedException) {
      return 409;
    }
    if (e instanceof IllegalArgumentException || e instanceof ValidationException) {
      return 400;
    }
    return e instanceof UnsupportedOperationException ? 406 : 500;
  }

  private static <T> T read(HttpExchange exchange, Class<T> type) throws IOException {
    return JSON.readValue(exchange.getRequestBody(), type);
  }

  private static String decoded(String part) {
    return URLDecoder.decode(part, StandardCharsets.UTF_8);
  }

  /** Names and the metadata files they stand for. */
  private static final class Pointers extends BaseMetastoreCatalog implements SupportsNamespaces {
    private final Map<Namespace, Map<String, String>> namespaces = new ConcurrentHashMap<>();
    private final Map<TableIdentifier, String> locations = new ConcurrentHashMap<>();
    private final String warehouse;
    private final FileIO io;

    Pointers(String warehouse, FileIO io) {
      this.warehouse = warehouse;
      this.io = io;
    }

    @Override
    protected TableOperations newTableOps(TableIdentifier table) {
      return new Operations(this, table);
    }

    @Override
    protected String defaultWarehouseLocation(TableIdentifier table) {
      return warehouse + "/" + table.toString().replace('.', '/');
    }

    @Override
    public List<TableIdentifier> listTables(Namespace namespace) {
      loadNamespaceMetadata(namespace);
      return locations.keySet().stream().filter(table -> table.namespace().equals(namespace)).toList();
    }

    @Override
    public boolean dropTable(TableIdentifier table, boolean purge) {
      throw new UnsupportedOperationException("tables stay");
    }

    @Override
    public void renameTable(TableIdentifier from, TableIdentifier to) {
      throw new UnsupportedOperationException("tables keep their names");
    }

    @Override
    public void createNamespace(Namespace namespace, Map<String, String> metadata) {
      if (namespaces.putIfAbsent(namespace, metadata) != null) {
        throw new AlreadyExistsException("Namespace already exists: %s", namespace);
      }
    }

    @Override
    public List<Namespace> listNamespaces(Namespace parent) {
      return namespaces.keySet().stream().filter(namespace -> isChild(parent, namespace)).toList();
    }

    private static boolean isChild(Namespace parent, Namespace namespace) {
      return namespace.length() == parent.length() + 1
          && List.of(namespace.levels()).subList(0, parent.length()).equals(List.of(parent.levels()));
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(Namespace namespace) {
      Map<String, String> metadata = namespaces.get(namespace);
      if (metadata == null) {
        throw new NoSuchNamespaceException("Namespace does not exist: %s", namespace);
      }
      return metadata;
    }

    @Override
    public boolean dropNamespace(Namespace namespace) {
      throw new UnsupportedOperationException("namespaces stay");
    }

    @Override
    public boolean setProperties(Namespace namespace, Map<String, String> properties) {
      throw new UnsupportedOperationException("namespaces keep their properties");
    }

    @Override
    public boolean removeProperties(Namespace namespace, Set<String> properties) {
      throw new UnsupportedOperationException("namespaces keep their properties");
    }
  }

  /** Reads and swaps one table's pointer. */
  private static final class Operations extends BaseMetastoreTableOperations {
    private final Pointers catalog;
    private final TableIdentifier table;

    Operations(Pointers catalog, TableIdentifier table) {
      this.catalog = catalog;
      this.table = table;
    }

    @Override
    protected String tableName() {
      return table.toString();
    }

    @Override
    public FileIO io() {
      return catalog.io;
    }

    @Override
    protected void doRefresh() {
      String location = catalog.locations.get(table);
      if (location == null && currentMetadataLocation() != null) {
        throw new NoSuchTableException("Table does not exist: %s", table);
      }
      refreshFromMetadataLocation(location);
    }

    @Override
    protected void doCommit(TableMetadata base, TableMetadata metadata) {
      String next = writeNewMetadataIfRequired(base == null, metadata);
      boolean swapped =
          base == null
              ? catalog.locations.putIfAbsent(table, next) == null
              : catalog.locations.replace(table, base.metadataFileLocation(), next);
      if (!swapped) {
        throw new CommitFailedException("Table %s was changed by another commit", table);
      }
    }
  }
}
