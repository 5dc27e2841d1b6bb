// Prefers a region that is behind, until that has caught up, and then writes.

const { CosmosClient } = require("@azure/cosmos");

async function control(verb, path, body) {
  const answer = await fetch(`${process.env.COSMOS_ENDPOINT}_emulator/${path}`, {
    method: verb,
    body: body && JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function main() {
  const client = new CosmosClient({
    endpoint: process.env.COSMOS_ENDPOINT,
    key: process.env.COSMOS_KEY,
    consistencyLevel: "Session",
    connectionPolicy: { preferredLocations: ["East US", "West US"] },
  });
  const { database } = await client.databases.create({ id: "d" });
  const { container } = await database.containers.create({ id: "c", partitionKey: "/pk" });
  await container.items.create({ id: "1", pk: "p" });
  const behind = await container.item("1", "p").read();
  const { read_item } = await control("GET", "requests");
  console.log(JSON.stringify({ status: behind.statusCode, answered: read_item }));
  await control("POST", "regions", { region: "East US", lag: 0 });
  const { resource } = await container.item("1", "p").read();
  console.log(JSON.stringify({ id: resource.id }));
  await control("POST", "regions", { region: "East US", writes: true });
  await container.items.create({ id: "2", pk: "p" });
  const moved = (await container.item("2", "p").read()).resource;
  console.log(JSON.stringify({ id: moved.id }));
  client.dispose();
}

main();
