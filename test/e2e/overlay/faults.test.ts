import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { ListenerState } from "../../../src/protocol/overlay/overlay.ts";
import { inNetworkOf, PRIVATE_NETWORK } from "../../support/network/private-machine.ts";
import { freePort } from "../../support/machine/programs.ts";
import {
  aClient,
  aListener,
  asAgent,
  aServer,
  aTable,
  echo,
  startBuiltOverlay,
} from "../../support/overlay/overlay-rig.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { untilStill } from "../../support/until-still.ts";
import { waitFor } from "../../support/wait-for.ts";

const MB = 1024 * 1024;

/** Reports whether a client's request is answered. */
async function answers(port: number): Promise<boolean> {
  const client = aClient(port);
  client.socket.end("x");
  await waitFor("an answer or an end", () => client.fate() !== undefined);
  return client.text() === "x";
}

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}

/** Returns the limit with exactly this number of free descriptors (getrlimit(2), RLIMIT_NOFILE). */
function limitFor(open: readonly number[], free: number): number {
  let limit = 0;
  for (let found = 0; found < free || open.includes(limit); limit += 1) if (!open.includes(limit)) found += 1;
  return limit;
}

it.each(sampleOf(["to the client", "to the server"], 1, "backpressure"))(
  "applies backpressure to a sender that never ends, %s that never reads, and serves the others",
  async (way) => {
    const overlay = startBuiltOverlay(tempDir());
    const agent = await asAgent(overlay);
    const [deaf, live] = [await freePort(), await freePort()];
    const piece = Buffer.alloc(MB);
    const endless = (socket: { write(data: Buffer): boolean; on(event: "drain", run: () => void): unknown }): void => {
      const send = (): void => {
        while (socket.write(piece));
      };
      socket.on("drain", send);
      send();
    };
    const target = await aServer((socket) => {
      socket.pause();
      if (way === "to the client") endless(socket);
    });
    const table = aTable([aListener(deaf, target), aListener(live, await aServer(echo))]);
    await agent.peer.request("table.set", { table });
    expect(await answers(live)).toBe(true);
    const before = residentBytes(overlay.pid);
    const flows = 32;
    for (let flow = 0; flow < flows; flow += 1) {
      const { socket } = aClient(deaf);
      socket.pause();
      if (way === "to the server") socket.on("connect", () => endless(socket));
    }
    const carried = await untilStill("nothing moves any more", async () => {
      const { counters } = await agent.peer.request("counters.get", {});
      const entry = counters.find(({ key }) => key === `tcp:${deaf}`);
      return entry?.activeFlows === flows ? entry.bytesIn + entry.bytesOut : 0;
    });
    // Only the kernel's buffers are filled; a flow holds one read, at most 128 KiB. The rest of the growth is V8's, whose compilers start
    // with the first traffic, and uncollected garbage.
    expect(carried).toBeLessThan(flows * 32 * MB);
    expect(residentBytes(overlay.pid) - before).toBeLessThan(flows * 4 * MB);
    expect(await answers(live)).toBe(true);
  },
);

it.each(sampleOf([0, 3], 1, "free descriptors"))(
  "continues when the system gives only %d descriptors more, and recovers by itself",
  async (free) => {
    const overlay = startBuiltOverlay(tempDir());
    const states: unknown[] = [];
    const agent = await asAgent(overlay, {
      "listeners.changed": ({ listeners }) => void states.push(...listeners.map(({ reason }) => reason)),
    });
    const port = await freePort();
    await agent.peer.request("table.set", { table: aTable([aListener(port, await aServer(echo))]) });
    states.length = 0;
    const running = aClient(port);
    running.socket.write("a");
    await waitFor("a flow works", () => running.text() === "a");
    const limit = (files: number): void => {
      execFileSync("prlimit", [`--pid=${overlay.pid}`, `--nofile=${files}:20000`]);
    };
    limit(limitFor(readdirSync(`/proc/${overlay.pid}/fd`).map(Number), free));
    const burst = Array.from({ length: 20 }, () => aClient(port));
    for (const { socket } of burst) socket.write("b");
    await waitFor("somebody was refused", () => burst.some((client) => client.fate() !== undefined));
    // Without any, libuv accepts and closes the connections itself, silently.
    const counted = free === 0 ? 0 : 1;
    await waitFor("it is counted by its name", async () => {
      const { counters } = await agent.peer.request("counters.get", {});
      return (counters[0]?.refusals["out-of-resources"] ?? 0) >= counted;
    });
    if (counted > 0) await waitFor("the listener reports it", () => states[0] === "out-of-resources");
    running.socket.write("a");
    await waitFor("the flow goes on", () => running.text() === "aa");
    for (const { socket } of burst) socket.destroy();
    limit(10_000);
    await waitFor("it serves again", () => answers(port));
    if (counted > 0) await waitFor("and reports it", () => states.length === 2 && states[1] === undefined);
  },
);

describe("in a network of its own", () => {
  /** An overlay that may not bind low ports; its reports on listeners are in `states`. */
  async function restricted() {
    const drop = 'ip link set lo up && exec setpriv --bounding-set=-net_bind_service "$0" "$@"';
    const overlay = startBuiltOverlay(tempDir(), [], [...PRIVATE_NETWORK.slice(0, -1), drop]);
    const states: ListenerState[] = [];
    const agent = await asAgent(overlay, {
      "listeners.changed": ({ listeners }) => void states.push(...listeners),
    });
    const run = (...command: readonly string[]): void => {
      const [file = "", ...args] = [...inNetworkOf(overlay.pid), ...command];
      execFileSync(file, args);
    };
    return { agent, states, run };
  }

  it("binds an address as soon as it exists, and a low port as soon as permitted", async () => {
    const { agent, states, run } = await restricted();
    const others = aListener(8080, 9, { key: "good" });
    const absent = aListener(8081, 9, { key: "absent", addresses: ["192.0.2.7"] });
    const low = aListener(80, 9, { key: "low" });
    const { listeners } = await agent.peer.request("table.set", { table: aTable([others, absent, low]) });
    expect(listeners).toMatchObject([
      { key: "good", state: "listening" },
      { key: "absent", state: "failed", reason: "address-absent", addresses: [] },
      // The unit may, with any parent.
      UNDER_UNITS
        ? { key: "low", state: "listening" }
        : { key: "low", state: "failed", reason: "permission-denied", addresses: [] },
    ]);
    states.length = 0;
    run("ip", "address", "add", "192.0.2.7/32", "dev", "lo");
    run("sh", "-c", "echo 80 > /proc/sys/net/ipv4/ip_unprivileged_port_start");
    const later = UNDER_UNITS ? ["absent"] : ["absent", "low"];
    await waitFor("they listen", () => states.filter(({ state }) => state === "listening").length === later.length);
    expect(states.map(({ key }) => key).toSorted()).toEqual(later);
  });
});
