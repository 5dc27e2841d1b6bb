package strangers;

import static strangers.Operations.create;
import static strangers.Report.expect;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

/** The change feed, pulled. */
final class Feeds {
  private final Report report;
  private final CosmosContainer items;

  Feeds(Report report, CosmosDatabase database) {
    this.report = report;
    this.items = Operations.container(database, "fed", 12_000);
    for (int i = 0; i < 20; i++) {
      create(items, "i" + i, "k" + i, i);
    }
  }

  void run() {
    report.of("feed ranges", () -> expect(2, items.getFeedRanges().size()));
    report.of("change feed from the beginning", this::fromBeginning);
    report.of("change feed of each range", this::ofEachRange);
    report.of("change feed of a partition key", this::ofKey);
    report.of("change feed from a point in time", this::fromTime);
    report.of("change feed from now, and on", this::fromNow);
    report.of("change feed of all versions and deletes", this::allVersions);
  }

  private void fromBeginning() {
    FeedRange whole = FeedRange.forFullRange();
    expect(20, read(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(whole)));
  }

  private void ofEachRange() {
    int found = 0;
    for (FeedRange range : items.getFeedRanges()) {
      found += read(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range));
    }
    expect(20, found);
  }

  private void ofKey() {
    FeedRange range = FeedRange.forLogicalPartition(new PartitionKey("k5"));
    expect(1, read(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range)));
  }

  private void fromTime() {
    Instant before = Instant.now().minusSeconds(600);
    FeedRange whole = FeedRange.forFullRange();
    expect(20,
        read(CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(before, whole)));
  }

  private void fromNow() {
    FeedRange whole = FeedRange.forFullRange();
    List<JsonNode> found = new ArrayList<>();
    String at = drain(CosmosChangeFeedRequestOptions.createForProcessingFromNow(whole), found);
    expect(0, found.size());
    for (int i = 0; i < 10; i++) {
      create(items, "later" + i, "k" + i, i);
    }
    drain(CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(at), found);
    expect(10, found.size());
  }

  private void allVersions() {
    FeedRange whole = FeedRange.forFullRange();
    List<JsonNode> found = new ArrayList<>();
    String at =
        drain(
            CosmosChangeFeedRequestOptions.createForProcessingFromNow(whole)
                .allVersionsAndDeletes(),
            found);
    create(items, "short", "k1", 1);
    items.upsertItem(Operations.item("short", "k1", 2));
    items.deleteItem("short", new PartitionKey("k1"), null);
    drain(
        CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(at)
            .allVersionsAndDeletes(),
        found);
    List<String> kinds = new ArrayList<>();
    found.forEach(x -> kinds.add(x.path("metadata").path("operationType").asText()));
    expect(List.of("create", "replace", "delete"), kinds);
  }

  private int read(CosmosChangeFeedRequestOptions options) {
    List<JsonNode> found = new ArrayList<>();
    drain(options, found);
    TreeSet<String> ids = new TreeSet<>();
    found.forEach(x -> ids.add(x.path("id").asText()));
    expect(found.size(), ids.size());
    return found.size();
  }

  /** Reads until nothing is left, and returns where to go on. */
  private String drain(CosmosChangeFeedRequestOptions options, List<JsonNode> found) {
    String at = null;
    for (FeedResponse<JsonNode> page :
        items.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
      found.addAll(page.getResults());
      at = page.getContinuationToken();
    }
    return at;
  }
}
