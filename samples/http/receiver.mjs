// Receives changes from `changefeed run --observer=http`, and prints each that it has handled.
//
//     node receiver.mjs PORT SECRET_FILE
//
// What this program throws on is named in the answer: it comes again, and goes to the dead
// letters in the end. Changes of one key come in order, and may come twice: the id tells.

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const MOST_BYTES = 8 * 2 ** 20;
const MOST_SECONDS = 300; // that a post may be old
const [port, secretFile] = process.argv.slice(2);
const seen = new Set(); // keep this with what you write, in one transaction

function handle(event) {
  if (seen.has(event.id)) return;
  if (event.data.account === undefined) throw new Error("there is no account");
  console.log(JSON.stringify({ id: event.id, key: event.partitionkey, data: event.data }));
  seen.add(event.id);
}

function isSigned(headers, body) {
  const id = headers["webhook-id"];
  const time = headers["webhook-timestamp"];
  if (!id || !(Math.abs(Date.now() / 1000 - Number(time)) < MOST_SECONDS)) return false;
  const hmac = createHmac("sha256", readFileSync(secretFile, "utf8").trim());
  const expected = Buffer.from(`v1,${hmac.update(`${id}.${time}.`).update(body).digest("base64")}`);
  const given = Buffer.from(headers["webhook-signature"] ?? "");
  return given.length === expected.length && timingSafeEqual(given, expected);
}

function handleAll(events) {
  const failed = [];
  const held = new Set(); // keys that wait for a change that has failed
  for (const event of events) {
    if (held.has(event.partitionkey)) continue;
    try {
      handle(event);
    } catch (error) {
      console.error(`${event.id}: ${error.message}`);
      failed.push({ itemIdentifier: event.id });
      held.add(event.partitionkey);
    }
  }
  return { batchItemFailures: failed };
}

const server = createServer(async (request, response) => {
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > MOST_BYTES) return response.writeHead(413).end();
    pieces.push(piece);
  }
  const body = Buffer.concat(pieces);
  if (!isSigned(request.headers, body)) return response.writeHead(401).end("not signed by us");
  const answer = JSON.stringify(handleAll(JSON.parse(body)));
  response.writeHead(200, { "Content-Type": "application/json" }).end(answer);
});
server.listen(Number(port), "127.0.0.1", () => console.error("ready"));
process.on("SIGTERM", () => server.close(() => process.exit(0)) && server.closeAllConnections());
