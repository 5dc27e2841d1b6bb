package strangers;

import static strangers.Report.expect;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.ThroughputProperties;

/** What was provisioned, and how many ranges it makes. */
record Throughput(Report report, CosmosClient client, CosmosDatabase database) {
  void run() {
    report.of("read and replace throughput", this::manual);
    report.of("autoscale throughput", this::autoscale);
    report.of("throughput of a database", this::shared);
  }

  private void manual() {
    CosmosContainer container = Operations.container(database, "manual", 500);
    expect(500, container.readThroughput().getProperties().getManualThroughput());
    container.replaceThroughput(ThroughputProperties.createManualThroughput(700));
    expect(700, container.readThroughput().getProperties().getManualThroughput());
  }

  private void autoscale() {
    ThroughputProperties wanted = ThroughputProperties.createAutoscaledThroughput(20_000);
    database.createContainer(new CosmosContainerProperties("scaled", "/pk"), wanted);
    CosmosContainer container = database.getContainer("scaled");
    ThroughputProperties found = container.readThroughput().getProperties();
    expect(20_000, found.getAutoscaleMaxThroughput());
    expect(3, container.getFeedRanges().size());
    container.replaceThroughput(ThroughputProperties.createAutoscaledThroughput(10_000));
    found = container.readThroughput().getProperties();
    expect(10_000, found.getAutoscaleMaxThroughput());
  }

  private void shared() {
    String name = database.getId() + "-shared";
    client.createDatabase(name, ThroughputProperties.createManualThroughput(600));
    CosmosDatabase made = client.getDatabase(name);
    expect(600, made.readThroughput().getProperties().getManualThroughput());
    made.replaceThroughput(ThroughputProperties.createManualThroughput(800));
    expect(800, made.readThroughput().getProperties().getManualThroughput());
    made.delete();
  }
}
