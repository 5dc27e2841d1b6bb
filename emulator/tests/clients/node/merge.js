// Runs queries over a container of the database d, and prints a line of JSON for each: its results,
// or why the client refuses. COSMOS_ENDPOINT and COSMOS_KEY say where; the arguments are the name of
// the container and a JSON file of queries.

const { readFileSync } = require("node:fs");
const { CosmosClient } = require("@azure/cosmos");

const client = new CosmosClient({
  endpoint: process.env.COSMOS_ENDPOINT,
  key: process.env.COSMOS_KEY,
});
const { items } = client.database("d").container(process.argv[2]);

async function main() {
  for (const query of JSON.parse(readFileSync(process.argv[3], "utf8"))) {
    let line;
    try {
      line = { results: (await items.query(query, { maxItemCount: 7 }).fetchAll()).resources };
    } catch (thrown) {
      line = { refused: String(thrown.message || thrown.body?.message || thrown).slice(0, 500) };
    }
    console.log(JSON.stringify(line));
  }
}

main();
