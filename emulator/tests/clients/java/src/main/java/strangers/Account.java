package strangers;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;

/** How to reach the endpoint: COSMOS_ENDPOINT and COSMOS_KEY of the environment. */
final class Account {
  private Account() {}

  static CosmosClient client(ConsistencyLevel consistency) {
    return builder(consistency).buildClient();
  }

  static CosmosAsyncClient asyncClient() {
    return builder(ConsistencyLevel.SESSION).buildAsyncClient();
  }

  private static CosmosClientBuilder builder(ConsistencyLevel consistency) {
    return new CosmosClientBuilder()
        .endpoint(System.getenv("COSMOS_ENDPOINT"))
        .key(System.getenv("COSMOS_KEY"))
        .gatewayMode()
        .contentResponseOnWriteEnabled(true)
        .consistencyLevel(consistency);
  }
}
