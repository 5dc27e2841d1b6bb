// Counts the databases: whether the endpoint, its key and its certificate are accepted.

const { CosmosClient } = require("@azure/cosmos");

async function main() {
  const client = new CosmosClient({
    endpoint: process.env.COSMOS_ENDPOINT,
    key: process.env.COSMOS_KEY,
  });
  const databases = (await client.databases.readAll().fetchAll()).resources.length;
  console.log(JSON.stringify({ databases }));
  client.dispose();
}

main();
