package strangers;

import static strangers.Report.expect;
import static strangers.Report.expectStatus;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.IndexingPolicy;
import java.util.List;

/** Databases and containers. */
record Resources(Report report, CosmosClient client, String name) {
  void run() {
    report.of("create and read a database", this::database);
    CosmosDatabase database = client.getDatabase(name);
    report.of("list and query databases", this::listed);
    report.of("create and read a container", () -> container(database));
    report.of("list and query containers", () -> containers(database));
    report.of("replace a container", () -> replace(database));
    report.of("delete a container", () -> delete(database));
  }

  private void database() throws Exception {
    client.createDatabase(name);
    expect(name, client.getDatabase(name).read().getProperties().getId());
    expectStatus(409, () -> client.createDatabase(name));
    expect(200, client.createDatabaseIfNotExists(name).getStatusCode());
    expectStatus(404, () -> client.getDatabase("none").read());
  }

  private void listed() {
    expect(true, client.readAllDatabases().stream().anyMatch(x -> x.getId().equals(name)));
    String query = "SELECT * FROM c WHERE c.id = '" + name + "'";
    expect(1L, client.queryDatabases(query, null).stream().count());
  }

  private void container(CosmosDatabase database) throws Exception {
    database.createContainer(new CosmosContainerProperties("plain", "/pk"));
    CosmosContainer made = database.getContainer("plain");
    expect(List.of("/pk"), made.read().getProperties().getPartitionKeyDefinition().getPaths());
    expectStatus(409, () -> database.createContainer("plain", "/pk"));
    expectStatus(404, () -> database.getContainer("none").read());
  }

  private void containers(CosmosDatabase database) {
    expect(1L, database.readAllContainers().stream().count());
    String query = "SELECT * FROM c WHERE c.id = 'plain'";
    expect(1L, database.queryContainers(query).stream().count());
  }

  private void replace(CosmosDatabase database) {
    CosmosContainer container = database.getContainer("plain");
    CosmosContainerProperties wanted = container.read().getProperties();
    wanted.setDefaultTimeToLiveInSeconds(-1);
    IndexingPolicy policy = new IndexingPolicy();
    policy.setExcludedPaths(List.of(new ExcludedPath("/large/*")));
    wanted.setIndexingPolicy(policy);
    container.replace(wanted);
    CosmosContainerProperties found = container.read().getProperties();
    expect(-1, found.getDefaultTimeToLiveInSeconds());
    expect("/large/*", found.getIndexingPolicy().getExcludedPaths().get(0).getPath());
  }

  private void delete(CosmosDatabase database) throws Exception {
    database.getContainer("plain").delete();
    expectStatus(404, () -> database.getContainer("plain").read());
  }
}
