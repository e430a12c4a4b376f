package org.apache.iceberg.rest;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import org.apache.iceberg.Files;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;

/** Files by path, file: URI, or s3: URI. The last are objects of a server that asks for no signatures. */
final class StoreFiles implements FileIO {
  private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final String endpoint;

  StoreFiles(String endpoint) {
    this.endpoint = endpoint;
  }

  @Override
  public InputFile newInputFile(String location) {
    if (!isObject(location)) {
      return Files.localInput(path(location));
    }
    HttpResponse<byte[]> answer = send(location, request(location).GET());
    if (answer.statusCode() == 404) {
      throw new NotFoundException("%s does not exist", location);
    }
    return new InMemoryInputFile(location, answer.body());
  }

  @Override
  public OutputFile newOutputFile(String location) {
    if (isObject(location)) {
      return new ObjectOutput(location);
    }
    File file = new File(path(location));
    file.getParentFile().mkdirs();
    // Iceberg's local output file names itself by its path, without a scheme; so does this catalog's warehouse.
    return Files.localOutput(file);
  }

  @Override
  public void deleteFile(String location) {
    if (isObject(location)) {
      send(location, request(location).DELETE());
    } else if (!new File(path(location)).delete()) {
      throw new NotFoundException("can't delete %s", location);
    }
  }

  private static boolean isObject(String location) {
    return location.startsWith("s3:");
  }

  private static String path(String location) {
    return location.startsWith("file:") ? location.replaceFirst("^file:/+", "/") : location;
  }

  private HttpRequest.Builder request(String location) {
    return HttpRequest.newBuilder(URI.create(endpoint + location.replaceFirst("^s3:/", "")));
  }

  private HttpResponse<byte[]> send(String location, HttpRequest.Builder request) {
    try {
      HttpResponse<byte[]> answer = http.send(request.build(), BodyHandlers.ofByteArray());
      if (answer.statusCode() >= 300 && answer.statusCode() != 404 && answer.statusCode() != 412) {
        throw new IOException(location + ": " + answer.statusCode());
      }
      return answer;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** An object that is stored when its stream is closed. */
  private final class ObjectOutput implements OutputFile {
    private final String location;

    ObjectOutput(String location) {
      this.location = location;
    }

    @Override
    public PositionOutputStream create() {
      return new Upload(location, false);
    }

    @Override
    public PositionOutputStream createOrOverwrite() {
      return new Upload(location, true);
    }

    @Override
    public String location() {
      return location;
    }

    @Override
    public InputFile toInputFile() {
      return newInputFile(location);
    }
  }

  private final class Upload extends PositionOutputStream {
    private final ByteArrayOutputStream content = new ByteArrayOutputStream();
    private final String location;
    private final boolean overwrites;
    private boolean isClosed;

    Upload(String location, boolean overwrites) {
      this.location = location;
      this.overwrites = overwrites;
    }

    @Override
    public long getPos() {
      return content.size();
    }

    @Override
    public void write(int value) {
      content.write(value);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) {
      content.write(bytes, offset, length);
    }

    @Override
    public void close() {
      if (isClosed) {
        return;
      }
      isClosed = true;
      HttpRequest.Builder put = request(location).PUT(BodyPublishers.ofByteArray(content.toByteArray()));
      if (!overwrites) {
        put.header("If-None-Match", "*");
      }
      if (send(location, put).statusCode() == 412) {
        throw new AlreadyExistsException("%s exists", location);
      }
    }
  }
}
