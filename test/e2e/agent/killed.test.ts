import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { isServed, startL4Stage, talk, untilRefused } from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import { relayOverlay, type OverlayRelay, type Passage } from "../../support/overlay/overlay-relay.ts";
import { freePort, startProgram } from "../../support/machine/programs.ts";
import { isDue, sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** The point in a pass at which the agent is killed: at the n-th call, before it arrives, after it, or after its answer. */
interface Point {
  readonly call: number;
  readonly when: "before" | "after" | "answered";
}

/** Every call of the pass is a point; a changing one is three. */
function pointsOf(calls: readonly string[]): readonly Point[] {
  return calls.flatMap((method, call): Point[] =>
    method === "table.set"
      ? [
          { call, when: "before" },
          { call, when: "after" },
          { call, when: "answered" },
        ]
      : [{ call, when: "before" }],
  );
}

/** Calls `kill` at a point, counted from now on. */
function killAt(relay: OverlayRelay, point: Point, kill: () => void): void {
  let seen = -1;
  let isOver = false;
  relay.decide = ({ is, method }: Passage) => {
    // Later calls are of a dead agent.
    if (isOver) return { passes: false };
    if (method !== "table.get" && method !== "table.set") return { passes: true };
    if (is === "call") seen += 1;
    const isHere = seen === point.call && is === (point.when === "answered" ? "answer" : "call");
    if (!isHere) return { passes: true };
    isOver = true;
    if (point.when !== "before") return { passes: true, after: kill };
    kill();
    return { passes: false };
  };
}

test("an agent that is killed anywhere in a pass finishes it after its restart, and cuts no flow", async () => {
  const dir = tempDir();
  const [agentRun, overlayRun] = [join(dir, "node/run"), join(dir, "overlay-run")];
  let relay: OverlayRelay | undefined;
  const stage = await startL4Stage(dir, {
    async before() {
      for (const path of [agentRun, overlayRun]) mkdirSync(path, { recursive: true, mode: 0o750 });
      const args = ["overlay", "--state", join(dir, "overlay-state"), "--run", overlayRun];
      const overlay = startProgram(args, join(dir, "overlay.log"));
      await waitFor("the overlay serves", () => overlay.log().includes("overlay started"));
      relay = await relayOverlay(join(agentRun, "overlay.sock"), join(overlayRun, "overlay.sock"));
      return {};
    },
  });
  if (relay === undefined) throw new Error("there is no relay");
  const [kept = 0, changed = 0, comes = 0, goes = 0] = await Promise.all(Array.from({ length: 4 }, freePort));
  const [one, other] = [await aServer((socket) => socket.end("one")), await aServer((socket) => socket.end("other"))];
  const literal = `127.0.0.1:${await aServer(echo)}`;
  const entry = { node: "local", protocol: "tcp", service: "web" };
  const desire = async (isOdd: boolean): Promise<void> => {
    const port = isOdd ? one : other;
    const gone = isOdd ? comes : goes;
    const ids = [1, 2, 3].map((n) => `00000000-0000-4000-8000-00000000000${n}`);
    const connectors = [
      { id: ids[0], ...entry, service: literal, port: kept },
      { id: ids[1], ...entry, port: changed, maxmbps: isOdd ? 100 : 200 },
      { id: ids[2], ...entry, port: gone },
    ];
    await stage.call("PUT", "config/services", {
      services: [{ id: ids[0], name: "web", protocol: "tcp", host: "127.0.0.1", port }],
    });
    await stage.call("PUT", "config/connectors", { connectors });
  };
  const isReached = async (isOdd: boolean): Promise<void> => {
    await stage.untilNamed({});
    const client = aClient(changed);
    await waitFor("an end", () => client.fate() !== undefined);
    expect(client.text()).toBe(isOdd ? "one" : "other");
    await untilRefused(isOdd ? goes : comes);
    const third = aClient(isOdd ? comes : goes);
    await waitFor("an end", () => third.fate() !== undefined);
    expect(third.text()).toBe(isOdd ? "one" : "other");
  };

  await desire(true);
  await isReached(true);
  const flow = aClient(kept);
  await talk(flow, "kept ");
  const calls: string[] = [];
  relay.decide = ({ is, method }) => {
    if (is === "call") calls.push(method);
    return { passes: true };
  };
  await desire(false);
  await isReached(false);
  expect(calls.filter((method) => method === "table.set").length).toBeGreaterThanOrEqual(2);

  let isOdd = false;
  const points = pointsOf(calls.slice(0, calls.lastIndexOf("table.set") + 2));
  for (const point of sampleOf(points, 1, "a pass")) {
    isOdd = !isOdd;
    killAt(relay, point, () => stage.agent.process.kill("SIGKILL"));
    const ended = new Promise((resolve) => stage.agent.process.once("exit", resolve));
    await desire(isOdd);
    await ended;
    relay.decide = () => ({ passes: true });
    await stage.startAgain();
    try {
      await isReached(isOdd);
      await talk(flow, `${point.call} ${point.when} `);
    } catch (error) {
      throw new Error(`killed ${point.when} call ${point.call}, ${calls[point.call]}`, { cause: error });
    }
  }
  expect(await isServed(kept)).toBe(true);
});

test.runIf(isDue("download and killed agent"))(
  "a download through a connector survives the agent that opened it, every byte of it",
  async () => {
    const stage = await startL4Stage(tempDir());
    const chunk = Buffer.alloc(64 * 1024, "holdfast ");
    const count = TESTS_ALL ? 8000 : 800;
    const sent = createHash("sha256");
    let sentChunks = 0;
    const server = createServer((_, response) => {
      const body = Readable.from(
        (function* chunks() {
          for (; sentChunks < count; sentChunks += 1) {
            chunk.writeUInt32BE(sentChunks, 0);
            sent.update(chunk);
            yield Buffer.from(chunk);
          }
        })(),
      );
      body.pipe(response);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const port = await freePort();
    const target = (server.address() as AddressInfo).port;
    await stage.create("services", { name: "web", protocol: "tcp", host: "127.0.0.1", port: target });
    await stage.create("connectors", { node: "local", service: "web", protocol: "tcp", port });
    await stage.untilNamed({});
    const overlay = stage.overlayPid();

    const received = createHash("sha256");
    const killed = stage.agent.process;
    let bytes = 0;
    const download = new Promise<void>((resolve, reject) => {
      get({ host: "127.0.0.1", port, agent: false }, (response) => {
        response.on("data", (part: Buffer) => {
          received.update(part);
          bytes += part.length;
          // The rest follows once the agent is dead.
          if (bytes > 1_000_000 && killed.signalCode === null) response.pause();
        });
        response.on("end", resolve).on("error", reject);
        killed.once("exit", () => response.resume());
      }).on("error", reject);
    });
    await waitFor("it is in the middle", () => bytes > 1_000_000);
    await stage.agent.end("SIGKILL");
    await stage.controller.end("SIGKILL");
    expect(sentChunks).toBeLessThan(count);
    await stage.startAgain();
    await download;
    expect(bytes).toBe(count * chunk.length);
    expect(received.digest("hex")).toBe(sent.digest("hex"));
    // Without a control plane, from its last good state.
    await waitFor("the agent has looked", async () => {
      const { sections } = await stage.agent.status();
      return sections["connectors"]?.state === "converged";
    });
    // The control plane is still down.
    const reasons = (await stage.why()).filter(({ section }) => section !== "health");
    expect([reasons, stage.overlayPid()]).toEqual([[], overlay]);
  },
);
