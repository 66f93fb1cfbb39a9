import { readFileSync } from "node:fs";
import { freemem } from "node:os";
import { join } from "node:path";
import { P256PublicKey } from "../../../src/protocol/values/keys.ts";
import type { Figure } from "../figures.ts";
import { memoryOf } from "../processes.ts";
import { delay, startHelper, type Helper } from "../programs.ts";
import { startBareGateway } from "./contenders.ts";
import { aMember, aPeer, startNode, type PublicKey } from "./node.ts";
import type { Sites } from "./sites.ts";

const MOST = 10_000;
/** Bytes of memory for one edge, at both ends together, rounded up. */
const BYTES_EACH = 400_000;
const DESCRIPTORS_KEPT = 500;
const CLIENTS = 2;
const SETTLE_MS = 3000;

/** Measures a gateway's memory for idle edges against a bare server with the same sessions; as many edges as the machine holds. */
export async function idleEdges(dir: string, sites: Sites, first: number): Promise<Figure[]> {
  const count =
    Math.floor(Math.min(MOST, freemem() / BYTES_EACH, descriptors() - DESCRIPTORS_KEPT) / CLIENTS) * CLIENTS;
  const { a, gateway, gatewayForB } = sites;
  const start = {
    netOf: gateway.netOf,
    flags: ["--expose-gc", "--import", join(import.meta.dirname, "../l4/collect.ts")],
  };
  const addresses = [gateway.address, gatewayForB];

  const bare = await startBareGateway(sites, first, start);
  const bareKeys = await startClients(a.netOf, count);
  await dialled(bareKeys, `${gateway.address}:${first}`, count);
  const bareMB = (await settled(bare.pid)) / 1e6;
  await Promise.all([...bareKeys.helpers, bare].map((one) => one.end("SIGKILL")));

  const clients = await startClients(a.netOf, count);
  const member = await aMember(first);
  const overlay = await startNode(join(dir, "idle"), member, start);
  const peers = await Promise.all(
    clients.keys.map(async (key, number) =>
      Object.assign(await aPeer(first + 1 + number, key), { mayDial: true as const }),
    ),
  );
  const server = { addresses, port: first + 1 };
  const mesh = { self: member.peer.uid, peers, paths: [], server, grants: [], routes: [] };
  await overlay.set({ services: [], listeners: [], mesh });
  await dialled(clients, `${gateway.address}:${first + 1}`, count);
  const overlayMB = (await settled(overlay.pid())) / 1e6;
  await Promise.all([...clients.helpers, overlay].map((one) => one.end("SIGKILL")));
  return [
    {
      what: `${count} idle edges on one gateway, private memory`,
      value: overlayMB,
      unit: "MB",
      peer: { name: "bare Node", value: bareMB },
      bar: { of: "ratio", most: 1.2 },
    },
  ];
}

interface Clients {
  readonly helpers: readonly Helper[];
  readonly keys: readonly PublicKey[];
}

async function startClients(netOf: number, count: number): Promise<Clients> {
  const helpers = Array.from({ length: CLIENTS }, () => startHelper("overlay/idle-edges.ts", [], { netOf }));
  const answers = await Promise.all(helpers.map((helper) => helper.ask(`keys ${count / CLIENTS}`)));
  return { helpers, keys: answers.flatMap((answer) => P256PublicKey.array().parse(JSON.parse(answer))) };
}

/** Connects them, and waits until all of them still are after a while. */
async function dialled({ helpers }: Clients, way: string, count: number): Promise<void> {
  const answers = await Promise.all(helpers.map((helper) => helper.ask(`dial ${way}`)));
  await delay(2 * SETTLE_MS);
  const still = await Promise.all(helpers.map((helper) => helper.ask("count")));
  const total = still.reduce((sum, value) => sum + Number(value), 0);
  if (total !== count) throw new Error(`${total} of ${count} edges are connected: ${answers.join(", ")}`);
}

/** Private memory once garbage is gone. */
async function settled(pid: number): Promise<number> {
  for (let time = 0; time < 2; time += 1) {
    process.kill(pid, "SIGUSR2");
    await delay(SETTLE_MS);
  }
  return memoryOf(pid).privateDirtyBytes;
}

/** Returns the limit of open files of this process (proc_pid_limits(5)). */
function descriptors(): number {
  return Number(/^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1] ?? 1024);
}
