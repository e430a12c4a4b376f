// Iceberg Java core's expireSnapshots, one round for each line of standard input, so that the JVM is warm.
//
// A line is `<folder> <older than, ms>`. The folder holds a copy of the table's newest metadata.json and of its
// version-hint.text, and nothing else: core has no dry run, so the commit goes into the copy, and the files that would
// be deleted from the table are only collected. The answer is one line of JSON.
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.IcebergBuild;
import org.apache.iceberg.Table;
import org.apache.iceberg.hadoop.HadoopTables;

public class ExpireRounds {
  public static void main(String[] arguments) throws Exception {
    System.out.printf("{\"iceberg\": \"%s\", \"java\": \"%s\"}%n", IcebergBuild.version(), Runtime.version());
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      int space = line.lastIndexOf(' ');
      expire(line.substring(0, space), Long.parseLong(line.substring(space + 1)));
    }
  }

  private static void expire(String folder, long olderThanMs) {
    Set<String> deleted = ConcurrentHashMap.newKeySet();
    long wall = System.nanoTime();
    long cpu = cpuNanos();
    Table table = new HadoopTables(new Configuration()).load(folder);
    table.expireSnapshots().expireOlderThan(olderThanMs).retainLast(1).deleteWith(deleted::add).commit();
    double wallSeconds = (System.nanoTime() - wall) / 1e9;
    double cpuSeconds = (cpuNanos() - cpu) / 1e9;

    long lists = deleted.stream().filter(path -> name(path).startsWith("snap-")).count();
    long avro = deleted.stream().filter(path -> path.endsWith(".avro")).count();
    System.out.printf(
        Locale.ROOT,
        "{\"wall\": %.6f, \"cpu\": %.6f, \"data files\": %d, \"manifests\": %d, \"manifest lists\": %d}%n",
        wallSeconds, cpuSeconds, deleted.size() - avro, avro - lists, lists);
  }

  private static String name(String path) {
    return path.substring(path.lastIndexOf('/') + 1);
  }

  /** CPU time of the whole process: planning threads, compiler and garbage collector included. */
  private static long cpuNanos() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
