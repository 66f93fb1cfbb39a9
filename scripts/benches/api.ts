import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent, request, type IncomingMessage } from "node:http";
import { join } from "node:path";
import type { Bench } from "./bench.ts";
import type { Figure } from "./figures.ts";
import { addNodes } from "./fleet.ts";
import { freePort, startController } from "./programs.ts";

const NODES = 10_000;
const LISTS = 100;
const READS = 1000;
const WRITERS = 8;
const WRITE_MS = 5000;
const PROJECTION = ["uid", "name", "online"].map((name) => `projection[]=${name}`).join("&");
/** Of the keys, which are random bytes, the one that a reader needs. */
const ONE_KEY = "projection[3][0]=keys&projection[3][1]=wireguard";

/** Measures answers of the HTTP API with many nodes in the store: times as a client on the same machine sees them, sizes on the wire. */
export const api: Bench = {
  area: "api",
  about: `the HTTP API of a controller with ${NODES} nodes: lists, single nodes, writes of items, the OpenAPI document`,
  async run({ dir, say }) {
    const first = await startController(dir, await freePort());
    await first.end();
    say(`storing ${NODES} nodes`);
    const uids = (await addNodes(join(dir, "controller", "controller.db"), NODES)).map(({ uid }) => uid);
    const port = await freePort();
    const controller = await startController(dir, port);
    const client = new Client(port, readFileSync(join(dir, "controller", "admin.key"), "utf8").trim());
    try {
      say("reading");
      const list = `/node?${PROJECTION}`;
      const lists = await timesOf(LISTS, () => client.call("GET", list));
      const packed = { "accept-encoding": "br, gzip" };
      const bytes = (await client.call("GET", `${list}&${ONE_KEY}`, undefined, packed)).length;
      const withKeys = (await client.call("GET", list, undefined, packed)).length;
      const beside = await besideLists(client, list, uids);
      const reads = await timesOf(READS, (at) => client.call("GET", `/node/${uids[at % NODES]}`));
      say("writing");
      const writes = await writesOf(client, uids);
      const compressed = await client.call("GET", "/openapi.json", undefined, packed);
      return [
        figure(`list of ${NODES} nodes with projections, p99`, percentile(lists, 99), "ms", { most: 150 }),
        // UIDs and keys are 1.45 MB of random bytes, which no coding makes shorter.
        figure(`list of ${NODES} nodes with projections, compressed`, withKeys / 1e6, "MB", { most: 1 }),
        { what: `list of ${NODES} nodes with projections and one key, compressed`, value: bytes / 1e6, unit: "MB" },
        figure("one node during lists, p99", percentile(beside, 99), "ms", { most: 50 }),
        figure("one node, p99", percentile(reads, 99), "ms", { most: 5 }),
        figure(`V2 items written by ${WRITERS} clients`, writes, "/s", { least: 500 }),
        figure("OpenAPI document on the wire", compressed.length / 1000, "kB", { most: 60 }),
      ];
    } finally {
      client.close();
      await controller.end();
    }
  },
};

function figure(what: string, value: number, unit: string, limit: { most: number } | { least: number }): Figure {
  return { what, value, unit, bar: { of: "value", ...limit } };
}

/** Adds items to the connectors of different nodes for a while; returns how many a second were answered. */
async function writesOf(client: Client, uids: readonly string[]): Promise<number> {
  const from = performance.now();
  let count = 0;
  const write = async (): Promise<void> => {
    while (performance.now() - from < WRITE_MS) {
      count += 1;
      const item = {
        service: "web",
        node: uids[count % NODES],
        protocol: "tcp",
        port: 1024 + Math.floor(count / NODES),
      };
      await client.call("POST", `/v2/node/${uids[(7 * count) % NODES]}/config/connectors`, item);
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, write));
  return (1000 * count) / (performance.now() - from);
}

/** Returns the times of requests for single nodes while lists are answered one after another. */
async function besideLists(client: Client, list: string, uids: readonly string[]): Promise<readonly number[]> {
  const lists = { isOver: false };
  const listing = timesOf(LISTS / 5, () => client.call("GET", list)).finally(() => (lists.isOver = true));
  const times: number[] = [];
  while (!lists.isOver) times.push(...(await timesOf(1, (at) => client.call("GET", `/node/${uids[at]}`))));
  await listing;
  return times;
}

async function timesOf(count: number, work: (at: number) => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let at = -Math.ceil(count / 10); at < count; at += 1) {
    const from = performance.now();
    await work(Math.abs(at));
    if (at >= 0) times.push(performance.now() - from);
  }
  return times;
}

function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN;
}

/** An HTTP client that keeps connections open and returns bodies as they were on the wire. */
class Client {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #port: number;
  readonly #key: string;

  constructor(port: number, key: string) {
    this.#port = port;
    this.#key = key;
  }

  async call(method: string, path: string, json?: unknown, headers: Record<string, string> = {}): Promise<Buffer> {
    const asked = request({
      host: "127.0.0.1",
      port: this.#port,
      method,
      path,
      agent: this.#agent,
      headers: {
        authorization: this.#key,
        ...(json === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
    });
    asked.end(json === undefined ? undefined : JSON.stringify(json));
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    const body = Buffer.concat(await response.toArray());
    if (response.statusCode !== 200)
      throw new Error(`${method} ${path}: HTTP ${response.statusCode} ${body.toString()}`);
    return body;
  }

  close(): void {
    this.#agent.destroy();
  }
}
