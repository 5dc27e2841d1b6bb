package strangers;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.PartitionKey;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * Runs every operation of the client. The arguments are the name of a database of its own and,
 * if not SESSION, a consistency level.
 */
public final class Operations {
  private Operations() {}

  public static void main(String[] arguments) {
    boolean weak = arguments.length > 1;
    ConsistencyLevel level =
        weak ? ConsistencyLevel.valueOf(arguments[1]) : ConsistencyLevel.SESSION;
    String name = weak ? "java-" + arguments[1].toLowerCase(Locale.ROOT) : "java";
    Report report = new Report(name);
    try (CosmosClient client = Account.client(level)) {
      String database = arguments[0] + "-" + name;
      new Resources(report, client, database).run();
      CosmosDatabase made = client.getDatabase(database);
      new Items(report, made).run();
      new Queries(report, made).run();
      new Feeds(report, made).run();
      new Keys(report, made).run();
      new Throughput(report, client, made).run();
      new Scripts(report, made).run();
      report.of("delete a database", made::delete);
    }
    System.exit(0); // the client's threads would keep the process for a while
  }

  static Map<String, Object> item(String id, String key, Object number) {
    Map<String, Object> item = new LinkedHashMap<>();
    item.put("id", id);
    item.put("pk", key);
    if (number != null) {
      item.put("n", number);
    }
    return item;
  }

  static CosmosContainer container(CosmosDatabase database, String name, int throughput) {
    database.createContainerIfNotExists(
        new com.azure.cosmos.models.CosmosContainerProperties(name, "/pk"),
        com.azure.cosmos.models.ThroughputProperties.createManualThroughput(throughput));
    return database.getContainer(name);
  }

  static void create(CosmosContainer container, String id, String key, Object number) {
    container.createItem(item(id, key, number), new PartitionKey(key), null);
  }
}
