package strangers;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Runs queries over a container of the database d and prints a line of JSON for each: its results,
 * or why the client refuses. The arguments are the name of the container and a JSON file of
 * queries.
 */
public final class Merge {
  private static final int LIMIT = 7; // small pages: a query goes over several of each range

  private Merge() {}

  public static void main(String[] arguments) throws Exception {
    JsonNode queries = new ObjectMapper().readTree(new File(arguments[1]));
    try (CosmosClient client = Account.client(ConsistencyLevel.SESSION)) {
      CosmosContainer container = client.getDatabase("d").getContainer(arguments[0]);
      for (JsonNode query : queries) {
        Report.print(answer(container, query));
      }
    }
    System.exit(0);
  }

  private static Map<String, Object> answer(CosmosContainer container, JsonNode query) {
    List<SqlParameter> parameters = new ArrayList<>();
    query.path("parameters").forEach(
        x -> parameters.add(new SqlParameter(x.get("name").asText(), x.get("value"))));
    String text = query.isTextual() ? query.asText() : query.get("query").asText();
    SqlQuerySpec spec = new SqlQuerySpec(text, parameters);
    List<JsonNode> found = new ArrayList<>();
    try {
      for (FeedResponse<JsonNode> page :
          container.queryItems(spec, new CosmosQueryRequestOptions(), JsonNode.class)
              .iterableByPage(LIMIT)) {
        found.addAll(page.getResults());
      }
    } catch (CosmosException | IllegalArgumentException | UnsupportedOperationException thrown) {
      return Map.of("refused", String.valueOf(thrown.getMessage()));
    }
    return Map.of("results", found);
  }
}
