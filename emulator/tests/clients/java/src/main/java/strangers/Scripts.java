package strangers;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;

/** Code that runs in the account, and its users. */
record Scripts(Report report, CosmosDatabase database) {
  void run() {
    CosmosContainer container = Operations.container(database, "scripted", 400);
    report.of("stored procedures", () -> container.getScripts().createStoredProcedure(
        new CosmosStoredProcedureProperties("s", "function s() {}")));
    report.of("triggers", () -> container.getScripts().createTrigger(
        new CosmosTriggerProperties("t", "function t() {}")
            .setTriggerOperation(TriggerOperation.ALL).setTriggerType(TriggerType.PRE)));
    report.of("user-defined functions", () -> container.getScripts().createUserDefinedFunction(
        new CosmosUserDefinedFunctionProperties("f", "function f() {}")));
    report.of("users", () -> database.createUser(new CosmosUserProperties().setId("u")));
  }
}
