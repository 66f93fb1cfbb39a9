import { type Figure } from "../figures.ts";
import type { Load } from "../l4/load-client.ts";
import type { Ports } from "../l4/contenders.ts";
import { delay } from "../programs.ts";
import { serverOf } from "./carrying.ts";
import { startMesh, type Mesh } from "./mesh.ts";
import type { OverlayNode } from "./node.ts";
import type { Sites } from "./sites.ts";

const ROUNDS = 3;
const FLOWS = 200;
/** Enough for the paths to be probed as those that carry something. */
const BUSY_FLOWS = 4;
const SETTLE_MS = 1000;
/** A gateway that went twice within ten seconds is dialled with more patience, which is another case. */
const STABLE_MS = 10_500;
const EVERY_MS = 20;
const WITHIN_MS = 20_000;

/** From the fault to the first answer on a flow that began after it: with another gateway to go to, and with none. */
export async function recoveries(dir: string, load: Load, sites: Sites, to: Ports, first: number): Promise<Figure[]> {
  const two = await startMesh(`${dir}/two`, sites, to, { first, gateways: 2 });
  const lost = await rounds(load, two, {
    fail: (gateway) => gateway.signal("SIGSTOP"),
    mend: (gateway) => gateway.signal("SIGCONT"),
  });
  const kill: Fault = { fail: (gateway) => gateway.crash(), mend: () => undefined };
  const closed = await rounds(load, two, kill);
  await two.end();
  const one = await startMesh(`${dir}/one`, sites, to, { first: first + 10 });
  const restarted = await rounds(load, one, { ...kill, settleMs: STABLE_MS });
  const figures = [
    inSeconds("failover, gateway stopped", lost, 3),
    inSeconds("failover, gateway killed", closed, 1),
    inSeconds("gateway killed and started again", restarted, 3),
    await agentRestarts(load, one),
  ];
  await one.end();
  return figures;
}

interface Fault {
  readonly fail: (gateway: OverlayNode) => void;
  readonly mend: (gateway: OverlayNode) => void;
  readonly settleMs?: number;
}

async function rounds(load: Load, mesh: Mesh, { fail, mend, settleMs = SETTLE_MS }: Fault): Promise<number[]> {
  const times: number[] = [];
  const echo = serverOf(mesh, "echo");
  for (let round = 0; round < ROUNDS; round += 1) {
    await mesh.settled();
    await load.ask({ do: "hold", ...echo, count: BUSY_FLOWS, keepOn: true });
    await delay(settleMs);
    const gateway = await mesh.carrying();
    fail(gateway);
    const { ms } = await load.ask({ do: "recovery", ...echo, everyMs: EVERY_MS, withinMs: WITHIN_MS });
    times.push(ms / 1000);
    mend(gateway);
    await load.ask({ do: "release" });
  }
  return times;
}

/** The worst of the rounds. */
function inSeconds(what: string, times: readonly number[], most: number): Figure {
  return {
    what: `${what}, worst of ${times.length}`,
    value: Math.max(...times),
    unit: "s",
    bar: { of: "value", most },
  };
}

/** Flows that are cut when the agents of all three nodes come back one after the other. */
async function agentRestarts(load: Load, mesh: Mesh): Promise<Figure> {
  await mesh.settled();
  await load.ask({ do: "hold", ...serverOf(mesh, "echo"), count: FLOWS, keepOn: true });
  for (const node of [mesh.source, ...mesh.gateways, mesh.destination]) {
    await node.agentRestarts();
    await delay(SETTLE_MS);
  }
  const { cut, exchanged } = await load.ask({ do: "release" });
  if (exchanged < 10 * FLOWS) throw new Error(`the flows stood still: ${exchanged} messages came back`);
  return {
    what: `of ${FLOWS} flows cut by restarts of the agents`,
    value: cut,
    unit: "",
    bar: { of: "value", most: 0 },
  };
}
