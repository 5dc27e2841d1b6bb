// Runs every operation of Azure's client for Node and prints a line of JSON for each.
// COSMOS_ENDPOINT and COSMOS_KEY say where; the argument names a database of its own.

const assert = require("node:assert/strict");
const {
  ChangeFeedMode,
  ChangeFeedStartFrom,
  CosmosClient,
  PartitionKeyDefinitionVersion,
  PartitionKeyKind,
} = require("@azure/cosmos");
const QUERIES = require("../queries.json");

const REFUSALS = [
  "is not supported by this emulator",
  "Cannot execute cross partition order-by queries on mixed types", // the client says so
];
const client = new CosmosClient({
  endpoint: process.env.COSMOS_ENDPOINT,
  key: process.env.COSMOS_KEY,
  consistencyLevel: "Session",
});
const name = `${process.argv[2]}-node`;
const database = client.database(name);

async function of(operation, attempt) {
  let result = "works";
  let reason = "";
  try {
    await attempt();
  } catch (thrown) {
    reason = String(thrown.message || thrown.body?.message || thrown).slice(0, 1500);
    result = REFUSALS.some((x) => reason.includes(x)) ? "refused" : "failed";
  }
  console.log(JSON.stringify({ client: "node", operation, result, reason }));
}

async function status(code, attempt) {
  const answer = await attempt().catch((thrown) => thrown);
  assert.equal(answer.code ?? answer.statusCode, code, answer.message);
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function container(id, more = {}) {
  const body = { id, partitionKey: { paths: ["/pk"] }, ...more };
  return (await database.containers.createIfNotExists(body)).container;
}

async function resources() {
  await of("create and read a database", async () => {
    await client.databases.create({ id: name });
    assert.equal((await database.read()).resource.id, name);
    const account = (await client.getDatabaseAccount()).resource;
    assert.equal(account.consistencyPolicy, "Session");
    const reads = [await client.getReadEndpoint(), ...(await client.getReadEndpoints())];
    const writes = [await client.getWriteEndpoint(), ...(await client.getWriteEndpoints())];
    assert.deepEqual(new Set([...reads, ...writes].map((x) => new URL(x).port)).size, 1);
    await status(409, () => client.databases.create({ id: name }));
    await status(404, () => client.database("none").read());
  });
  await of("list and query databases", async () => {
    const all = (await client.databases.readAll().fetchAll()).resources;
    assert(all.some((x) => x.id === name));
    const query = `SELECT * FROM c WHERE c.id = '${name}'`;
    assert.equal((await client.databases.query(query).fetchAll()).resources.length, 1);
  });
  await of("create and read a container", async () => {
    await database.containers.create({ id: "plain", partitionKey: { paths: ["/pk"] } });
    const found = (await database.container("plain").read()).resource;
    assert.deepEqual(found.partitionKey.paths, ["/pk"]);
    const key = (await database.container("plain").getPartitionKeyDefinition()).resource;
    assert.deepEqual(key.paths, ["/pk"]);
    await status(409, () =>
      database.containers.create({ id: "plain", partitionKey: { paths: ["/pk"] } }),
    );
  });
  await of("list and query containers", async () => {
    assert.equal((await database.containers.readAll().fetchAll()).resources.length, 1);
    const query = "SELECT * FROM c WHERE c.id = 'plain'";
    assert.equal((await database.containers.query(query).fetchAll()).resources.length, 1);
  });
  await of("replace a container", async () => {
    const plain = database.container("plain");
    const { resource } = await plain.read();
    await plain.replace({ ...resource, defaultTtl: -1 });
    assert.equal((await plain.read()).resource.defaultTtl, -1);
  });
  await of("delete a container", async () => {
    await database.container("plain").delete();
    await status(404, () => database.container("plain").read());
  });
}

async function single() {
  const made = await container("items", { throughput: 12_000 });
  const { items } = made;
  const get = (id) => made.item(id, "p").read();
  await of("create an item", async () => {
    assert.equal((await items.create({ id: "a", pk: "p", n: 1 })).statusCode, 201);
    await status(409, () => items.create({ id: "a", pk: "p", n: 1 }));
  });
  await of("read an item", async () => {
    assert.equal((await get("a")).resource.n, 1);
    assert.equal((await get("none")).statusCode, 404);
  });
  await of("read by a session token", async () => {
    const sessionToken = (await items.upsert({ id: "later", pk: "p" })).headers["x-ms-session-token"];
    assert.equal((await made.item("later", "p").read({ sessionToken })).resource.id, "later");
  });
  await of("read an item that is unchanged", async () => {
    const { etag } = await get("a");
    const accessCondition = { type: "IfNoneMatch", condition: etag };
    await status(304, () => made.item("a", "p").read({ accessCondition }));
  });
  await of("replace an item", async () => {
    await made.item("a", "p").replace({ id: "a", pk: "p", n: 2 });
    assert.equal((await get("a")).resource.n, 2);
  });
  await of("upsert an item", async () => {
    assert.equal((await items.upsert({ id: "b", pk: "p", n: 1 })).statusCode, 201);
    assert.equal((await items.upsert({ id: "b", pk: "p", n: 2 })).statusCode, 200);
  });
  await of("patch an item", async () => {
    await made.item("a", "p").patch([
      { op: "set", path: "/n", value: 5 },
      { op: "incr", path: "/n", value: 2 },
    ]);
    assert.equal((await get("a")).resource.n, 7);
  });
  await of("patch under a condition", async () => {
    const operations = [{ op: "set", path: "/n", value: 0 }];
    const condition = "FROM c WHERE c.n > 100";
    await status(412, () => made.item("a", "p").patch({ condition, operations }));
  });
  await of("write under an etag", async () => {
    const accessCondition = { type: "IfMatch", condition: (await get("a")).etag };
    const write = () =>
      made.item("a", "p").replace({ id: "a", pk: "p", n: 8 }, { accessCondition });
    await write();
    await status(412, write);
  });
  await of("delete an item", async () => {
    await made.item("a", "p").delete();
    await status(404, () => made.item("a", "p").delete());
  });
  await of("read all items of a key", async () => {
    await items.create({ id: "alone", pk: "key7" });
    const found = await items.readAll({ partitionKey: "key7" }).fetchAll();
    assert.equal(found.resources.length, 1);
  });
}

async function many() {
  const { items } = await container("items");
  const create = (id, n) => ({ operationType: "Create", resourceBody: { id, pk: "p", n } });
  await of("batch", async () => {
    const done = await items.batch(
      [
        create("c", 1),
        { operationType: "Upsert", resourceBody: { id: "d", pk: "p" } },
        { operationType: "Patch", id: "d", resourceBody: { operations: [{ op: "set", path: "/n", value: 3 }] } },
        { operationType: "Read", id: "d" },
        { operationType: "Delete", id: "b" },
      ],
      "p",
    );
    assert.deepEqual(done.result.map((x) => x.statusCode), [201, 201, 200, 200, 204]);
    assert.equal(done.result[3].resourceBody.n, 3);
  });
  await of("batch that fails as a whole", async () => {
    const done = await items.batch([create("e", 1), create("c", 1)], "p");
    assert.deepEqual(done.result.map((x) => x.statusCode), [424, 409]);
  });
  await of("bulk", async () => {
    const wanted = [];
    for (let i = 0; i < 300; i++) {
      const resourceBody = { id: `i${i}`, pk: `bulk${i % 30}`, n: i };
      wanted.push({ operationType: "Upsert", partitionKey: resourceBody.pk, resourceBody });
    }
    const done = await items.executeBulkOperations(wanted);
    assert(done.every((x) => x.response.statusCode === 201));
    assert((await items.bulk(wanted.slice(0, 100))).every((x) => x.statusCode === 200)); // the older one
  });
  await of("bulk with failures", async () => {
    const one = { partitionKey: "bulk1" };
    const done = await items.executeBulkOperations([
      { operationType: "Create", ...one, resourceBody: { id: "i1", pk: "bulk1" } },
      { operationType: "Create", ...one, resourceBody: { id: "new", pk: "bulk1" } },
      { operationType: "Patch", id: "i31", ...one, resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
      { operationType: "Read", id: "i61", ...one },
      { operationType: "Delete", id: "i91", ...one },
      { operationType: "Delete", id: "none", ...one },
    ]);
    const codes = done.map((x) => x.response?.statusCode ?? x.error?.code);
    assert.deepEqual(codes, [409, 201, 200, 200, 204, 404]);
  });
  await of("time to live", async () => {
    const mortal = await container("mortal", { defaultTtl: -1 });
    await mortal.items.create({ id: "a", pk: "p", ttl: 1 });
    await pause(2100);
    assert.equal((await mortal.item("a", "p").read()).statusCode, 404);
  });
}

async function queries() {
  const compositeIndexes = [
    [{ path: "/pk", order: "descending" }, { path: "/n", order: "ascending" }],
  ];
  const made = await container("queried", {
    throughput: 12_000,
    indexingPolicy: { compositeIndexes },
  });
  const { items } = made;
  for (let i = 0; i < 30; i++) {
    const item = { id: `i${String(i).padStart(2, "0")}`, pk: `k${i % 7}`, tags: [`t${i % 2}`, `t${i % 3}`] };
    Object.assign(item, { v: [i, 1], words: `w${i} red` });
    await items.upsert(i === 13 ? item : { ...item, n: i });
  }
  const find = async (query, options) => {
    const spec = { query, parameters: [{ name: "@n", value: 4 }] };
    return (await items.query(spec, options).fetchAll()).resources;
  };
  for (const { operation, text, results } of QUERIES) {
    await of(operation, async () => {
      assert.deepEqual(await find(text), results);
      assert.deepEqual(await find(text, { forceQueryPlan: true }), results); // merged here
    });
  }
  await of("query of a partition key", async () => {
    const text = "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC";
    assert.deepEqual(await find(text, { partitionKey: "k2" }), ["i23", "i16"]);
  });
  const paged = async (text, wanted, forceQueryPlan) => {
    const found = [];
    const pages = items.query(text, { maxItemCount: 4, forceQueryPlan });
    while (pages.hasMoreResults()) found.push(...((await pages.fetchNext()).resources ?? []));
    assert.equal(new Set(found).size, wanted);
    assert.equal(found.length, wanted);
  };
  await of("query in pages", async () => {
    const plan = (await made.getQueryPlan("SELECT TOP 3 * FROM c")).result;
    assert.equal(plan.queryInfo.top, 3);
    await paged("SELECT VALUE c.id FROM c", 30, false);
    await paged("SELECT VALUE c.id FROM c", 30, true);
  });
  await of("query with ORDER BY in pages", async () => {
    await paged("SELECT VALUE c.id FROM c ORDER BY c.pk", 30, false);
    await paged("SELECT VALUE c.id FROM c ORDER BY c.pk", 30, true);
  });
  await of("query with TOP in pages", () => paged("SELECT TOP 17 VALUE c.id FROM c", 17, true));
  await of("query with a user-defined function", async () => {
    const body = "function (x) { return 2 * x; }";
    await made.scripts.userDefinedFunctions.create({ id: "twice", body });
    const text = "SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = 'i04'";
    assert.deepEqual(await find(text), [8]);
  });
}

async function feeds() {
  const made = await container("fed", { throughput: 12_000 });
  for (let i = 0; i < 20; i++) await made.items.create({ id: `i${i}`, pk: `k${i}`, n: i });
  const drain = async (options, found = []) => {
    const iterator = made.items.getChangeFeedIterator(options);
    let token;
    while (iterator.hasMoreResults) {
      const page = await iterator.readNext();
      token = page.continuationToken;
      if (page.statusCode === 304) break;
      found.push(...page.result);
    }
    return { found, token };
  };
  const count = async (from) => (await drain({ changeFeedStartFrom: from })).found.length;
  await of("feed ranges", async () => {
    assert.equal((await made.getFeedRanges()).length, 2);
    assert.equal((await made.readPartitionKeyRanges().fetchAll()).resources.length, 2);
  });
  await of("change feed from the beginning", async () => {
    assert.equal(await count(ChangeFeedStartFrom.Beginning()), 20);
    const older = { startFromBeginning: true }; // the older ones, a key at a time
    for (const pages of [made.items.changeFeed("k5", older), made.items.readChangeFeed("k5", older)]) {
      assert.deepEqual((await pages.fetchNext()).result.map((x) => x.id), ["i5"]);
    }
  });
  await of("change feed of each range", async () => {
    let found = 0;
    for (const range of await made.getFeedRanges()) {
      found += await count(ChangeFeedStartFrom.Beginning(range));
    }
    assert.equal(found, 20);
  });
  await of("change feed of a partition key", async () =>
    assert.equal(await count(ChangeFeedStartFrom.Beginning("k5")), 1));
  await of("change feed from a point in time", async () =>
    assert.equal(await count(ChangeFeedStartFrom.Time(new Date(Date.now() - 600_000))), 20));
  await of("change feed from now, and on", async () => {
    const { found, token } = await drain({ changeFeedStartFrom: ChangeFeedStartFrom.Now() });
    assert.equal(found.length, 0);
    for (let i = 0; i < 10; i++) await made.items.create({ id: `later${i}`, pk: `k${i}` });
    assert.equal(await count(ChangeFeedStartFrom.Continuation(token)), 10);
  });
  await of("change feed of all versions and deletes", async () => {
    const changeFeedMode = ChangeFeedMode.AllVersionsAndDeletes;
    const now = ChangeFeedStartFrom.Now();
    const { token } = await drain({ changeFeedStartFrom: now, changeFeedMode });
    await made.items.create({ id: "short", pk: "k1", n: 1 });
    await made.items.upsert({ id: "short", pk: "k1", n: 2 });
    await made.item("short", "k1").delete();
    const on = ChangeFeedStartFrom.Continuation(token);
    const { found } = await drain({ changeFeedStartFrom: on, changeFeedMode });
    const kinds = found.map((x) => x.metadata.operationType);
    assert.deepEqual(kinds, ["create", "replace", "delete"]);
  });
}

async function keys() {
  await of("unique keys", async () => {
    const uniqueKeyPolicy = { uniqueKeys: [{ paths: ["/n"] }] };
    const { items } = await container("unique", { uniqueKeyPolicy });
    await items.create({ id: "a", pk: "p", n: 1 });
    await status(409, () => items.create({ id: "b", pk: "p", n: 1 }));
    await items.create({ id: "b", pk: "other", n: 1 });
  });
  const nested = database.container("nested");
  await of("hierarchical partition keys", async () => {
    const partitionKey = {
      paths: ["/tenant", "/user", "/session"],
      kind: PartitionKeyKind.MultiHash,
      version: PartitionKeyDefinitionVersion.V2,
    };
    await database.containers.create({ id: "nested", partitionKey });
    for (let i = 0; i < 12; i++) {
      await nested.items.create({ id: `i${i}`, tenant: `t${i % 2}`, user: `u${i % 3}`, session: i });
    }
    assert.equal((await nested.item("i5", ["t1", "u2", 5]).read()).resource.session, 5);
  });
  await of("query of a prefix of a hierarchical key", async () => {
    const options = { partitionKey: ["t1"] };
    const found = await nested.items.query("SELECT * FROM c", options).fetchAll();
    assert.equal(found.resources.length, 6);
  });
  await of("delete all items of a partition key", async () => {
    const emptied = await container("emptied");
    for (let i = 0; i < 10; i++) await emptied.items.create({ id: `i${i}`, pk: i < 7 ? "p" : "q" });
    await emptied.deleteAllItemsForPartitionKey("p");
    let left = 10;
    for (let i = 0; i < 50 && left > 3; i++) { // an account deletes in the background
      await pause(100);
      left = (await emptied.items.readAll().fetchAll()).resources.length;
    }
    assert.equal(left, 3);
  });
}

async function throughput() {
  await of("read and replace throughput", async () => {
    const manual = await container("manual", { throughput: 500 });
    const { resource } = await manual.readOffer();
    assert.equal(resource.content.offerThroughput, 500);
    resource.content.offerThroughput = 700;
    await client.offer(resource.id).replace(resource);
    assert.equal((await manual.readOffer()).resource.content.offerThroughput, 700);
  });
  await of("autoscale throughput", async () => {
    const scaled = await container("scaled", { maxThroughput: 20_000 });
    const { resource } = await scaled.readOffer();
    assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 20_000);
    assert.equal((await scaled.getFeedRanges()).length, 3);
  });
  await of("throughput of a database", async () => {
    const id = `${name}-shared`;
    const shared = (await client.databases.create({ id, throughput: 600 })).database;
    assert.equal((await shared.readOffer()).resource.content.offerThroughput, 600);
    await shared.delete();
  });
}

async function scripts() {
  const made = await container("scripted");
  await of("stored procedures", async () => {
    const body = `function (name) {
      var items = getContext().getCollection(), item = {id: name, pk: "p"};
      items.createDocument(items.getSelfLink(), item, {}, function (error, made) {
        if (error) throw error;
        getContext().getResponse().setBody(made.id.length);
      });
    }`;
    await made.scripts.storedProcedures.create({ id: "s", body });
    const procedure = made.scripts.storedProcedure("s");
    assert.equal((await procedure.execute("p", ["new"])).resource, 3);
    assert.equal((await made.item("new", "p").read()).resource.id, "new");
    await assert.rejects(procedure.execute("p", ["new"]), { code: 400 });
    await procedure.replace({ id: "s", body: "function s() {}" });
    const listed = (await made.scripts.storedProcedures.readAll().fetchAll()).resources;
    assert.deepEqual(listed.map((x) => x.body), ["function s() {}"]);
    await procedure.delete();
  });
  await of("triggers", async () => {
    const body = `function () {
      var request = getContext().getRequest(), item = request.getBody();
      item.stamped = true;
      request.setBody(item);
    }`;
    const trigger = { id: "t", body, triggerOperation: "Create", triggerType: "Pre" };
    await made.scripts.triggers.create(trigger);
    const item = { id: "stamped", pk: "p" };
    const stored = await made.items.create(item, { preTriggerInclude: ["t"] });
    assert.equal(stored.resource.stamped, true);
    assert.equal((await made.scripts.trigger("t").read()).resource.triggerType, "Pre");
    await made.scripts.trigger("t").delete();
  });
  await of("user-defined functions", async () => {
    const body = "function f() {}";
    await made.scripts.userDefinedFunctions.create({ id: "f", body });
    assert.equal((await made.scripts.userDefinedFunction("f").read()).resource.body, body);
    await made.scripts.userDefinedFunction("f").delete();
  });
  await of("conflict feed", async () => {
    assert.deepEqual((await made.conflicts.readAll().fetchAll()).resources, []);
    assert.deepEqual((await made.conflicts.query("SELECT * FROM c").fetchAll()).resources, []);
    await status(404, () => made.conflict("none", "p").read());
    await status(404, () => made.conflict("none", "p").delete());
  });
  await of("users", async () => {
    await database.users.create({ id: "u" });
    await database.users.upsert({ id: "v" });
    await database.user("v").replace({ id: "w" });
    const named = (await database.users.query("SELECT VALUE c.id FROM c").fetchAll()).resources;
    const listed = (await database.users.readAll().fetchAll()).resources.map((x) => x.id);
    assert.deepEqual([named.sort(), listed.sort()], [["u", "w"], ["u", "w"]]);
    await database.user("w").delete();
    await status(404, () => database.user("w").read());
  });
  await of("permissions", async () => {
    const { permissions } = database.user("u");
    const { resource } = await made.read();
    const allowed = { id: "p", permissionMode: "read", resource: resource._self };
    await permissions.create(allowed);
    await permissions.upsert({ ...allowed, permissionMode: "all" });
    const permission = database.user("u").permission("p");
    assert.equal((await permission.read()).resource.permissionMode.toLowerCase(), "all");
    await permission.replace(allowed);
    assert.equal((await permissions.readAll().fetchAll()).resources.length, 1);
    assert.equal((await permissions.query("SELECT * FROM c").fetchAll()).resources.length, 1);
    await permission.delete();
    await status(404, () => permission.read());
  });
}

async function main() {
  for (const part of [resources, single, many, queries, feeds, keys, throughput, scripts]) {
    await part();
  }
  await of("delete a database", () => database.delete());
  client.dispose();
}

main();
