package strangers;

import static strangers.Report.expect;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Queries over two ranges: item i00 to i29, with the keys k0 to k6, and n, or not. */
final class Queries {
  private final Report report;
  private final CosmosContainer items;

  Queries(Report report, CosmosDatabase database) {
    this.report = report;
    CosmosContainerProperties wanted = new CosmosContainerProperties("queried", "/pk");
    wanted.setIndexingPolicy(new IndexingPolicy().setCompositeIndexes(List.of(List.of(
        new CompositePath().setPath("/pk").setOrder(CompositePathSortOrder.DESCENDING),
        new CompositePath().setPath("/n").setOrder(CompositePathSortOrder.ASCENDING)))));
    database.createContainer(wanted, ThroughputProperties.createManualThroughput(12_000));
    this.items = database.getContainer("queried");
    for (int i = 0; i < 30; i++) {
      Map<String, Object> item =
          Operations.item(String.format("i%02d", i), "k" + i % 7, i == 13 ? null : i);
      item.put("tags", List.of("t" + i % 2, "t" + i % 3));
      item.put("v", List.of(i, 1));
      item.put("words", "w" + i + " red");
      items.upsertItem(item);
    }
  }

  void run() {
    query("query with parameters", "SELECT VALUE c.id FROM c WHERE c.n = @n", "[i04]");
    query("query with TOP", "SELECT TOP 2 VALUE c.pk FROM c WHERE c.pk = 'k3'", "[k3, k3]");
    query("query with ORDER BY",
        "SELECT VALUE c.id FROM c WHERE c.n > 25 ORDER BY c.n DESC", "[i29, i28, i27, i26]");
    query("query with ORDER BY of what is missing",
        "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n", "[i13, i00]");
    query("query with ORDER BY of several values",
        "SELECT TOP 3 VALUE c.id FROM c ORDER BY c.pk DESC, c.n ASC", "[i13, i06, i20]");
    query("query with OFFSET and LIMIT",
        "SELECT VALUE c.n FROM c WHERE c.n > 1 ORDER BY c.n OFFSET 3 LIMIT 2", "[5, 6]");
    query("query with COUNT", "SELECT VALUE COUNT(1) FROM c WHERE c.n < 10", "[10]");
    query("query with SUM and AVG", "SELECT VALUE SUM(c.n) FROM c WHERE c.n < 4", "[6.0]");
    query("query with SUM and AVG", "SELECT VALUE AVG(c.n) FROM c WHERE c.n < 4", "[1.5]");
    query("query with MIN and MAX", "SELECT VALUE MIN(c.n) FROM c", "[0]");
    query("query with MIN and MAX", "SELECT VALUE MAX(c.id) FROM c", "[i29]");
    query("query with columns of aggregates",
        "SELECT COUNT(1) AS count, MAX(c.n) AS most FROM c", "[{count=30, most=29}]");
    query("query with GROUP BY",
        "SELECT c.pk, COUNT(1) AS count, AVG(c.n) AS mean FROM c WHERE c.pk = 'k1' GROUP BY c.pk",
        "[{pk=k1, count=5, mean=15.0}]");
    query("query with DISTINCT", "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk",
        "[k0, k1, k2, k3, k4, k5, k6]");
    query("query with DISTINCT", "SELECT DISTINCT c.tags[0] AS tag FROM c WHERE c.n = 1",
        "[{tag=t1}]");
    query("query with JOIN",
        "SELECT c.id, t FROM c JOIN t IN c.tags WHERE c.n = 5", "[{id=i05, t=t1}, {id=i05, t=t2}]");
    query("query with LIKE", "SELECT VALUE c.id FROM c WHERE c.id LIKE '%_7' ORDER BY c.id",
        "[i07, i17, i27]");
    query("query with IN and BETWEEN",
        "SELECT VALUE c.n FROM c WHERE c.n IN (3, 4, 99) OR c.n BETWEEN 28 AND 40 ORDER BY c.n",
        "[3, 4, 28, 29]");
    query("query with a ternary and ??",
        "SELECT VALUE (c.n > 13 ? 'high' : c.m ?? 'low') FROM c WHERE c.n IN (3, 14) ORDER BY c.n",
        "[low, high]");
    query("query with EXISTS and ARRAY",
        "SELECT ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) AS tags FROM c "
            + "WHERE c.n = 4 AND EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't1')",
        "[{tags=[T0, T1]}]");
    query("query with functions",
        "SELECT VALUE CONCAT(SUBSTRING(c.id, 0, 2), '-', ToString(FLOOR(c.n / 2))) FROM c "
            + "WHERE STARTSWITH(c.id, 'i2') AND ARRAY_CONTAINS(c.tags, 't2') AND c.n > 25 "
            + "ORDER BY c.n",
        "[i2-13, i2-14]");
    query("query of the nearest vectors",
        "SELECT TOP 2 c.id FROM c ORDER BY "
            + "VectorDistance(c.v, [7.2, 1], false, {'distanceFunction': 'euclidean'})",
        "[{id=i07}, {id=i08}]");
    query("query by rank of texts and vectors",
        "SELECT TOP 1 c.id FROM c ORDER BY RANK "
            + "RRF(FullTextScore(c.words, 'w7'), VectorDistance(c.v, [7, 1]))",
        "[{id=i07}]");
    report.of("query of a partition key", this::ofKey);
    report.of("query of a feed range", this::ofRange);
    report.of("query in pages", () -> paged("SELECT VALUE c.id FROM c", 30));
    report.of("query with ORDER BY in pages",
        () -> paged("SELECT VALUE c.id FROM c ORDER BY c.pk", 30));
    report.of("query with TOP in pages", () -> paged("SELECT TOP 17 VALUE c.id FROM c", 17));
    report.of("query with a user-defined function", this::ofFunction);
  }

  private void ofFunction() {
    items.getScripts().createUserDefinedFunction(
        new CosmosUserDefinedFunctionProperties("twice", "function (x) { return 2 * x; }"));
    expect("[8]", find("SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = 'i04'", null));
  }

  private void query(String operation, String text, String wanted) {
    report.of(operation, () -> expect(wanted, find(text, null)));
  }

  private List<Object> find(String text, CosmosQueryRequestOptions options) {
    SqlQuerySpec query = new SqlQuerySpec(text, new SqlParameter("@n", 4));
    return items.queryItems(query, options, Object.class).stream().collect(Collectors.toList());
  }

  private void ofKey() {
    CosmosQueryRequestOptions options =
        new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("k2"));
    expect("[i23, i16]", find("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC", options));
  }

  private void ofRange() {
    List<Object> found = new ArrayList<>();
    for (FeedRange range : items.getFeedRanges()) {
      CosmosQueryRequestOptions options = new CosmosQueryRequestOptions().setFeedRange(range);
      found.addAll(find("SELECT VALUE c.id FROM c", options));
    }
    expect(2, items.getFeedRanges().size());
    expect(30L, found.stream().distinct().count());
  }

  /** Reads page by page, each from the continuation of the one before. */
  private void paged(String text, int wanted) {
    List<String> found = new ArrayList<>();
    String continuation = null;
    int pages = 0;
    do {
      FeedResponse<JsonNode> page =
          items.queryItems(text, null, JsonNode.class)
              .iterableByPage(continuation, 4).iterator().next();
      page.getResults().forEach(x -> found.add(x.asText()));
      continuation = page.getContinuationToken();
      pages++;
    } while (continuation != null && pages < 40);
    expect(wanted, found.size());
    expect((long) wanted, found.stream().distinct().count());
    expect(true, pages > 3);
  }
}
