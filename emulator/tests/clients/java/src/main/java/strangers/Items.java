package strangers;

import static strangers.Operations.create;
import static strangers.Operations.item;
import static strangers.Report.expect;
import static strangers.Report.expectStatus;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperationResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Items one by one, in batches, in bulk. */
final class Items {
  private static final PartitionKey P = new PartitionKey("p");
  private final Report report;
  private final CosmosContainer items;

  Items(Report report, CosmosDatabase database) {
    this.report = report;
    this.items = Operations.container(database, "items", 12_000);
  }

  void run() {
    report.of("create an item", this::create);
    report.of("read an item", this::read);
    report.of("read an item that is unchanged", this::readUnchanged);
    report.of("replace an item", this::replace);
    report.of("upsert an item", this::upsert);
    report.of("patch an item", this::patch);
    report.of("patch under a condition", this::patchUnderCondition);
    report.of("write under an etag", this::etags);
    report.of("delete an item", this::delete);
    report.of("read many items", this::readMany);
    report.of("read all items of a key", this::readAll);
    report.of("batch", this::batch);
    report.of("batch that fails as a whole", this::failingBatch);
    report.of("bulk", this::bulk);
    report.of("bulk with failures", this::failingBulk);
    report.of("time to live", this::timeToLive);
  }

  private void create() throws Exception {
    expect(201, items.createItem(item("a", "p", 1), P, null).getStatusCode());
    expectStatus(409, () -> items.createItem(item("a", "p", 1), P, null));
  }

  private void read() throws Exception {
    expect(1, get("a").getItem().get("n"));
    expectStatus(404, () -> get("none"));
  }

  private void readUnchanged() {
    CosmosItemRequestOptions options =
        new CosmosItemRequestOptions().setIfNoneMatchETag(get("a").getETag());
    expect(304, items.readItem("a", P, options, Map.class).getStatusCode());
  }

  private void replace() throws Exception {
    items.replaceItem(item("a", "p", 2), "a", P, null);
    expect(2, get("a").getItem().get("n"));
    expectStatus(404, () -> items.replaceItem(item("none", "p", 2), "none", P, null));
  }

  private void upsert() {
    expect(201, items.upsertItem(item("b", "p", 1)).getStatusCode());
    expect(200, items.upsertItem(item("b", "p", 2)).getStatusCode());
  }

  private void patch() {
    CosmosPatchOperations operations =
        CosmosPatchOperations.create().set("/n", 5).add("/tags", List.of("x")).increment("/n", 2);
    items.patchItem("a", P, operations, Map.class);
    expect(7, get("a").getItem().get("n"));
    items.patchItem("a", P, CosmosPatchOperations.create().remove("/tags"), Map.class);
    expect(null, get("a").getItem().get("tags"));
  }

  private void patchUnderCondition() throws Exception {
    CosmosPatchItemRequestOptions options = new CosmosPatchItemRequestOptions();
    options.setFilterPredicate("FROM c WHERE c.n > 100");
    CosmosPatchOperations operations = CosmosPatchOperations.create().set("/n", 0);
    expectStatus(412, () -> items.patchItem("a", P, operations, options, Map.class));
  }

  private void etags() throws Exception {
    String old = get("a").getETag();
    CosmosItemRequestOptions options = new CosmosItemRequestOptions().setIfMatchETag(old);
    items.replaceItem(item("a", "p", 8), "a", P, options);
    expectStatus(412, () -> items.replaceItem(item("a", "p", 9), "a", P, options));
    expectStatus(412, () -> items.deleteItem("a", P, options));
  }

  private void delete() throws Exception {
    items.deleteItem("a", P, null);
    expectStatus(404, () -> items.deleteItem("a", P, null));
  }

  private void readMany() {
    List<CosmosItemIdentity> wanted = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      Operations.create(items, "many" + i, "key" + i, i);
      wanted.add(new CosmosItemIdentity(new PartitionKey("key" + i), "many" + i));
    }
    wanted.add(new CosmosItemIdentity(P, "none"));
    expect(20, items.readMany(wanted, Map.class).getResults().size());
    List<PartitionKey> keys = List.of(new PartitionKey("key2"), new PartitionKey("key3"));
    expect(2L, items.readManyByPartitionKeys(keys, Map.class).stream().count());
  }

  private void readAll() {
    expect(1L, items.readAllItems(new PartitionKey("key7"), Map.class).stream().count());
  }

  private void batch() {
    CosmosBatch batch = CosmosBatch.createCosmosBatch(P);
    batch.createItemOperation(item("c", "p", 1));
    batch.upsertItemOperation(item("d", "p", 1));
    batch.replaceItemOperation("c", item("c", "p", 2));
    batch.patchItemOperation("d", CosmosPatchOperations.create().set("/n", 3));
    batch.readItemOperation("d");
    batch.deleteItemOperation("b");
    CosmosBatchResponse done = items.executeCosmosBatch(batch);
    expect(true, done.isSuccessStatusCode());
    expect(3, done.getResults().get(4).getItem(Map.class).get("n"));
    expect(204, done.getResults().get(5).getStatusCode());
  }

  private void failingBatch() throws Exception {
    CosmosBatch batch = CosmosBatch.createCosmosBatch(P);
    batch.createItemOperation(item("e", "p", 1));
    batch.createItemOperation(item("c", "p", 1));
    CosmosBatchResponse done = items.executeCosmosBatch(batch);
    expect(409, done.getStatusCode());
    expect(424, done.getResults().get(0).getStatusCode());
    expectStatus(404, () -> get("e"));
  }

  private void bulk() {
    List<CosmosItemOperation> wanted = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      PartitionKey key = new PartitionKey("bulk" + i % 30);
      wanted.add(
          CosmosBulkOperations.getUpsertItemOperation(item("i" + i, "bulk" + i % 30, i), key));
    }
    for (CosmosBulkOperationResponse<?> done : items.executeBulkOperations(wanted)) {
      if (done.getException() != null) {
        throw new IllegalStateException(done.getException());
      }
      expect(201, done.getResponse().getStatusCode());
    }
  }

  private void failingBulk() {
    PartitionKey key = new PartitionKey("bulk1");
    List<CosmosItemOperation> wanted =
        List.of(
            CosmosBulkOperations.getCreateItemOperation(item("i1", "bulk1", 0), key),
            CosmosBulkOperations.getCreateItemOperation(item("new", "bulk1", 0), key),
            CosmosBulkOperations.getPatchItemOperation(
                "i31", key, CosmosPatchOperations.create().increment("/n", 1)),
            CosmosBulkOperations.getReadItemOperation("i61", key),
            CosmosBulkOperations.getDeleteItemOperation("i91", key),
            CosmosBulkOperations.getDeleteItemOperation("none", key));
    List<Integer> found = new ArrayList<>();
    for (CosmosBulkOperationResponse<?> done : items.executeBulkOperations(wanted)) {
      found.add(done.getResponse().getStatusCode());
    }
    found.sort(null);
    expect(List.of(200, 200, 201, 204, 404, 409), found);
  }

  private void timeToLive() throws Exception {
    var properties = items.read().getProperties();
    properties.setDefaultTimeToLiveInSeconds(-1);
    items.replace(properties);
    Map<String, Object> mortal = item("mortal", "p", 1);
    mortal.put("ttl", 1);
    items.createItem(mortal);
    Thread.sleep(2100);
    expectStatus(404, () -> get("mortal"));
  }

  @SuppressWarnings("rawtypes")
  private CosmosItemResponse<Map> get(String id) {
    return items.readItem(id, P, Map.class);
  }
}
