import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readFileSync } from "node:fs";
import { connect, createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { median, type Figure } from "../figures.ts";
import { delay, freePort, registerAgent, startAgent, startController, until, type Controller } from "../programs.ts";

const ROUNDS = 21;
const MANY = 1000;
const PASSES = 7;
const SETTLE_MS = 500;
/** Below the ports that the kernel gives to outgoing connections. */
const FIRST_PORT = 21_000;

/** From a call of the API to its effect on a node of this machine, with one connector and with a thousand. */
export async function applying(dir: string): Promise<Figure[]> {
  mkdirSync(dir, { recursive: true });
  const server = createServer((socket) => socket.on("error", () => undefined).pipe(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const controller = await startController(dir, await freePort());
  const node = join(dir, "node");
  const agent = await startAgent(node, { env: { HOLDFAST_LOG_LEVEL: "debug" } });
  await registerAgent(controller, node);
  const api = apiOf(controller, dir);
  const uid = await api.uid();
  const { port } = server.address() as AddressInfo;
  await api.send("POST", `/v2/node/${uid}/config/services`, { name: "echo", protocol: "tcp", host: "127.0.0.1", port });
  try {
    return [...(await one(api, uid)), ...(await many(api, uid, node))];
  } finally {
    await agent.end();
    await controller.end();
    process.kill(Number(readFileSync(join(node, "run", "overlay.pid"), "utf8")), "SIGKILL");
    server.close();
  }
}

async function one(api: Api, uid: string): Promise<Figure[]> {
  const times: number[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    const port = FIRST_PORT + MANY + round;
    const from = performance.now();
    await api.send("POST", `/v2/node/${uid}/config/connectors`, connectorOn(port));
    await until("traffic flows", () => isCarried(port), 1);
    if (round > 0) times.push(performance.now() - from);
  }
  return [{ what: "call to traffic", value: median(times), unit: "ms", bar: { of: "value", most: 250 } }];
}

async function many(api: Api, uid: string, node: string): Promise<Figure[]> {
  const ids = Array.from({ length: MANY }, () => randomUUID());
  const path = `/node/${uid}/config/connectors`;
  const replace = async (change: (index: number) => object): Promise<Passed & { from: number }> => {
    await settled(node);
    const before = passesOf(node).length;
    const connectors = ids.map((id, index) => Object.assign(connectorOn(FIRST_PORT + index), { id }, change(index)));
    const from = performance.now();
    await api.send("PUT", path, { connectors });
    await until("the pass has ended", () => passesOf(node).length > before);
    const passed = passesOf(node).at(-1) ?? { durationMs: Number.NaN, steps: Number.NaN };
    return { ...passed, from };
  };
  // A whole list can only be written where there is none item by item.
  await api.send("DELETE", path);
  const earlier = passesOf(node).length;
  const { from } = await replace(() => ({}));
  await until("the last connector carries", () => isCarried(FIRST_PORT + MANY - 1), 5);
  const first = performance.now() - from;
  await settled(node);
  // One that a newer document stopped has done part of it.
  const applied = passesOf(node)
    .slice(earlier)
    .reduce((sum, { steps, durationMs }) => sum + (steps > 0 ? durationMs : 0), 0);
  const unchanged: number[] = [];
  for (let round = 0; round < PASSES; round += 1) {
    const pass = await replace(() => ({ description: `round ${round}` }));
    if (pass.steps !== 0) throw new Error(`a description took ${pass.steps} steps`);
    unchanged.push(pass.durationMs);
  }
  const changed = await replace((index) => (index === 7 ? { maxmbps: 10 } : {}));
  return [
    { what: "1,000 connectors, first", value: first, unit: "ms", bar: { of: "value", most: 3000 } },
    {
      what: "1,000, no change",
      value: median(unchanged),
      unit: "ms",
      peer: { name: "the pass that applies them", value: applied },
      bar: { of: "ratio", most: 0.25 },
    },
    { what: "1,000, one changed", value: changed.steps, unit: "steps", bar: { of: "value", most: 1 } },
  ];
}

interface Passed {
  readonly durationMs: number;
  readonly steps: number;
}

/** Waits until no pass has ended for a while. */
async function settled(node: string): Promise<void> {
  let before = -1;
  for (let now = passesOf(node).length; now !== before; now = passesOf(node).length) {
    before = now;
    await delay(SETTLE_MS);
  }
}

/** The passes in the agent's log. */
function passesOf(node: string): Passed[] {
  return readFileSync(join(node, "agent.log"), "utf8")
    .split("\n")
    .filter((line) => line.includes('"msg":"pass ended"'))
    .map((line) => JSON.parse(line) as Passed);
}

const connectorOn = (port: number) => ({ protocol: "tcp", localIp: "127.0.0.1", port, node: "local", service: "echo" });

/** Whether a byte comes back through the connector. */
function isCarried(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("x"));
    socket
      .once("data", () => {
        socket.destroy();
        resolve(true);
      })
      .once("error", () => resolve(false))
      .once("close", () => resolve(false));
  });
}

interface Api {
  send(method: string, path: string, body?: object): Promise<void>;
  uid(): Promise<string>;
}

function apiOf(controller: Controller, dir: string): Api {
  const authorization = readFileSync(join(dir, "controller", "admin.key"), "utf8").trim();
  return {
    async send(method, path, body) {
      const headers = { authorization, "content-type": "application/json" };
      const content = body === undefined ? {} : { body: JSON.stringify(body) };
      const response = await fetch(`${controller.url}${path}`, { method, headers, ...content });
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: HTTP ${response.status} ${text}`);
    },
    async uid() {
      const [node] = JSON.parse(await controller.call("/node")) as { uid: string }[];
      return node?.uid ?? "";
    },
  };
}
