package strangers;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * One host of the change feed processor, which prints each change that it is given. The arguments
 * are changes (leases of version 0), latest or all (version 1), the name of the host, and that of a
 * database; it works on orders there with the leases in leases, and stops when its input ends.
 */
public final class Processor {
  private Processor() {}

  public static void main(String[] arguments) throws Exception {
    CosmosAsyncClient client = Account.asyncClient();
    CosmosAsyncDatabase database = client.getDatabase(arguments[2]);
    ChangeFeedProcessorBuilder builder =
        new ChangeFeedProcessorBuilder()
            .hostName(arguments[1])
            .feedContainer(database.getContainer("orders"))
            .leaseContainer(database.getContainer("leases"))
            .options(options(arguments[0].equals("all")));
    ChangeFeedProcessor processor =
        switch (arguments[0]) {
          case "changes" -> builder.handleChanges(Processor::printed).buildChangeFeedProcessor();
          case "latest" ->
              builder.handleLatestVersionChanges(Processor::print).buildChangeFeedProcessor();
          default ->
              builder.handleAllVersionsAndDeletesChanges(Processor::print)
                  .buildChangeFeedProcessor();
        };
    processor.start().block();
    Report.print(Map.of("started", arguments[1]));
    while (System.in.read() >= 0) {
      // goes on until its input ends
    }
    processor.stop().block();
    Report.print(Map.of("stopped", arguments[1]));
    System.exit(0);
  }

  private static ChangeFeedProcessorOptions options(boolean fromNow) {
    return new ChangeFeedProcessorOptions()
        .setLeasePrefix("fleet")
        .setStartFromBeginning(!fromNow)
        .setMaxItemCount(20)
        .setFeedPollDelay(Duration.ofMillis(100))
        .setLeaseAcquireInterval(Duration.ofMillis(500))
        .setLeaseRenewInterval(Duration.ofSeconds(1))
        .setLeaseExpirationInterval(Duration.ofSeconds(5));
  }

  private static void printed(List<JsonNode> items) {
    items.forEach(x -> Report.print(Map.of("id", x.path("id").asText())));
  }

  private static void print(List<ChangeFeedProcessorItem> changes) {
    for (ChangeFeedProcessorItem change : changes) {
      JsonNode whole = change.toJsonNode();
      JsonNode metadata = whole.path("metadata");
      String id = whole.path("current").path("id").asText(metadata.path("id").asText());
      String operation = metadata.path("operationType").asText("");
      Report.print(Map.of("id", id, "operation", operation));
    }
  }
}
