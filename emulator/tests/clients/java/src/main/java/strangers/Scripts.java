package strangers;

import static strangers.Report.expect;
import static strangers.Report.expectStatus;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.CosmosScripts;
import com.azure.cosmos.CosmosStoredProcedure;
import com.azure.cosmos.CosmosUser;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosStoredProcedureRequestOptions;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Code that runs in the account, and its users. */
record Scripts(Report report, CosmosDatabase database) {
  private static final PartitionKey KEY = new PartitionKey("p");
  private static final String ALL = "SELECT * FROM c";
  private static final String CREATES = """
      function (name) {
        var items = getContext().getCollection(), item = {id: name, pk: "p"};
        items.createDocument(items.getSelfLink(), item, {}, function (error, made) {
          if (error) throw error;
          getContext().getResponse().setBody(made.id.length);
        });
      }""";
  private static final String STAMPS = """
      function () {
        var request = getContext().getRequest(), item = request.getBody();
        item.stamped = true;
        request.setBody(item);
      }""";

  void run() {
    CosmosContainer container = Operations.container(database, "scripted", 400);
    report.of("stored procedures", () -> procedures(container));
    report.of("triggers", () -> triggers(container));
    report.of("user-defined functions", () -> functions(container.getScripts()));
    report.of("users", this::users);
  }

  private void procedures(CosmosContainer container) {
    CosmosScripts scripts = container.getScripts();
    scripts.createStoredProcedure(new CosmosStoredProcedureProperties("s", CREATES));
    CosmosStoredProcedure procedure = scripts.getStoredProcedure("s");
    CosmosStoredProcedureRequestOptions options =
        new CosmosStoredProcedureRequestOptions().setPartitionKey(KEY);
    expect("3", procedure.execute(List.of("new"), options).getResponseAsString());
    expect("new", container.readItem("new", KEY, JsonNode.class).getItem().get("id").asText());
    try {
      procedure.execute(List.of("new"), options);
      throw new AssertionError("expected the status 400, and it worked");
    } catch (CosmosException refused) {
      expect(400, refused.getStatusCode());
    }
    procedure.replace(procedure.read().getProperties().setBody("function s() {}"));
    expect("function s() {}", procedure.read().getProperties().getBody());
    expect(1L, scripts.readAllStoredProcedures().stream().count());
    expect(1L, scripts.queryStoredProcedures(ALL, null).stream().count());
    procedure.delete();
  }

  private void triggers(CosmosContainer container) {
    container.getScripts().createTrigger(new CosmosTriggerProperties("t", STAMPS)
        .setTriggerOperation(TriggerOperation.CREATE).setTriggerType(TriggerType.PRE));
    container.createItem(Map.of("id", "stamped", "pk", "p"), KEY,
        new CosmosItemRequestOptions().setPreTriggerInclude(List.of("t")));
    JsonNode stored = container.readItem("stamped", KEY, JsonNode.class).getItem();
    expect(true, stored.get("stamped").asBoolean());
    expect(1L, container.getScripts().readAllTriggers().stream().count());
    expect(1L, container.getScripts().queryTriggers(ALL, null).stream().count());
    container.getScripts().getTrigger("t").delete();
  }

  private void functions(CosmosScripts scripts) {
    scripts.createUserDefinedFunction(
        new CosmosUserDefinedFunctionProperties("f", "function f() {}"));
    expect("f", scripts.getUserDefinedFunction("f").read().getProperties().getId());
    expect(1L, scripts.readAllUserDefinedFunctions().stream().count());
    expect(1L, scripts.queryUserDefinedFunctions(ALL, null).stream().count());
    scripts.getUserDefinedFunction("f").delete();
  }

  private void users() throws Exception {
    database.createUser(new CosmosUserProperties().setId("u"));
    database.upsertUser(new CosmosUserProperties().setId("v"));
    CosmosUser user = database.getUser("v");
    user.replace(user.read().getProperties().setId("w"));
    expect(2L, database.readAllUsers().stream().count());
    expect("w", database.queryUsers("SELECT * FROM c WHERE c.id > 'u'").stream()
        .map(CosmosUserProperties::getId).collect(Collectors.joining()));
    database.getUser("w").delete();
    expectStatus(404, () -> database.getUser("w").read());
  }
}
