package strangers;

import static strangers.Operations.item;
import static strangers.Report.expect;
import static strangers.Report.expectStatus;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import java.util.List;
import java.util.Map;

/** Unique keys, hierarchical partition keys, and what is deleted by key. */
record Keys(Report report, CosmosDatabase database) {
  void run() {
    report.of("unique keys", this::unique);
    report.of("hierarchical partition keys", this::hierarchical);
    report.of("query of a prefix of a hierarchical key", this::prefix);
    report.of("delete all items of a partition key", this::deleteByKey);
  }

  private void unique() throws Exception {
    CosmosContainerProperties wanted = new CosmosContainerProperties("unique", "/pk");
    wanted.setUniqueKeyPolicy(
        new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/n")))));
    database.createContainer(wanted);
    CosmosContainer items = database.getContainer("unique");
    items.createItem(item("a", "p", 1));
    expectStatus(409, () -> items.createItem(item("b", "p", 1)));
    items.createItem(item("b", "p", 2));
    items.createItem(item("b", "other", 1));
    expectStatus(409, () -> items.upsertItem(item("b", "p", 1)));
    items.deleteItem("a", new PartitionKey("p"), null);
    items.createItem(item("c", "p", 1));
  }

  private void hierarchical() throws Exception {
    PartitionKeyDefinition definition = new PartitionKeyDefinition();
    definition.setPaths(List.of("/tenant", "/user", "/session"));
    definition.setKind(PartitionKind.MULTI_HASH);
    definition.setVersion(PartitionKeyDefinitionVersion.V2);
    database.createContainer(new CosmosContainerProperties("nested", definition));
    CosmosContainer items = database.getContainer("nested");
    for (int i = 0; i < 12; i++) {
      items.createItem(
          Map.of("id", "i" + i, "tenant", "t" + i % 2, "user", "u" + i % 3, "session", i));
    }
    PartitionKey key = key("t1", "u2", 5);
    expect("t1", items.readItem("i5", key, Map.class).getItem().get("tenant"));
    expectStatus(404, () -> items.readItem("i5", key("t1", "u2", 6), Map.class));
  }

  private void prefix() {
    CosmosContainer items = database.getContainer("nested");
    CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
    options.setPartitionKey(new PartitionKeyBuilder().add("t1").build());
    expect(6L, items.queryItems("SELECT * FROM c", options, Map.class).stream().count());
    options.setPartitionKey(new PartitionKeyBuilder().add("t1").add("u2").build());
    expect(2L, items.queryItems("SELECT * FROM c", options, Map.class).stream().count());
    String text = "SELECT * FROM c WHERE c.tenant = 't0'";
    expect(6L, items.queryItems(text, null, Map.class).stream().count());
  }

  private void deleteByKey() throws Exception {
    CosmosContainer items = Operations.container(database, "emptied", 400);
    for (int i = 0; i < 10; i++) {
      Operations.create(items, "i" + i, i < 7 ? "p" : "q", i);
    }
    PartitionKey p = new PartitionKey("p");
    items.deleteAllItemsByPartitionKey(p, new CosmosItemRequestOptions());
    long left = 7;
    for (int i = 0; i < 50 && left > 0; i++) { // an account deletes in the background
      Thread.sleep(100);
      left = items.readAllItems(p, Map.class).stream().count();
    }
    expect(0L, left);
    expect(3L, items.readAllItems(new PartitionKey("q"), Map.class).stream().count());
  }

  private static PartitionKey key(String tenant, String user, int session) {
    return new PartitionKeyBuilder().add(tenant).add(user).add(session).build();
  }
}
