package strangers;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosClient;
import java.util.Map;

/** Counts the databases: whether the endpoint, its key and its certificate are accepted. */
public final class Ping {
  private Ping() {}

  public static void main(String[] arguments) {
    try (CosmosClient client = Account.client(ConsistencyLevel.SESSION)) {
      Report.print(Map.of("databases", client.readAllDatabases().stream().count()));
    }
    System.exit(0);
  }
}
