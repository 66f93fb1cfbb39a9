import { createHash } from "node:crypto";
import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { beforeAll, beforeEach, expect, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import { endProcess, isServed, startL4Stage, talk, type L4Stage } from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo, startBuiltOverlay } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { endUnitsBelow, UNDER_UNITS } from "../../support/machine/real-units.ts";
import { eventsOf } from "../../support/stage.ts";
import { isDue, TESTS_ALL } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { OVERLAY_FORMAT } from "../../../src/protocol/overlay/overlay.ts";

const ROUNDS = TESTS_ALL ? 3 : 2;
const onFinished = fileEnd();
let stage: L4Stage;
let port: number;

/** One connector, which serves before and after each test. */
beforeAll(async () => {
  stage = await startL4Stage(tempDir(onFinished), { onFinished });
  port = await freePort();
  const target = await aServer(echo, "127.0.0.1", onFinished);
  await stage.create("services", { name: "web", protocol: "tcp", host: "127.0.0.1", port: target });
  await stage.create("connectors", { node: "local", service: "web", protocol: "tcp", port });
});
beforeEach(async () => {
  await waitFor("it serves", () => isServed(port));
  await stage.untilNamed({});
});

/** Kills the serving overlay, and waits for its exit. */
async function killOverlay(): Promise<number> {
  const pid = stage.overlayPid();
  endProcess(pid);
  await waitFor("it has ended", () => !existsSync(`/proc/${pid}/fd/0`));
  return pid;
}

test("an overlay killed under traffic recovers, however often", async () => {
  const over = new AbortController();
  let served = 0;
  const load = Array.from({ length: 4 }, async () => {
    while (!over.signal.aborted) if (await isServed(port)) served += 1;
  });
  for (let kills = 0; kills < ROUNDS; kills += 1) {
    await waitFor("traffic", () => served > 20);
    const before = await killOverlay();
    served = 0;
    await waitFor("another overlay serves", () => stage.overlayPid() !== before && served > 0);
  }
  over.abort();
  await Promise.all(load);
  await stage.untilNamed({});
  expect((await stage.agent.status()).session.state).toBe("online");
});

test("an overlay that receives SIGTERM lets its flows end, and another serves in its place at once", async () => {
  const flow = aClient(port);
  await talk(flow, "before");
  const first = stage.overlayPid();
  process.kill(first, "SIGTERM");
  await waitFor("another overlay serves", async () => stage.overlayPid() !== first && (await isServed(port)));
  await talk(flow, "after");
  await stage.untilNamed({});
  expect((await stage.agent.status()).engines.overlay).toMatchObject({ state: "up", pid: stage.overlayPid() });
  expect(existsSync(`/proc/${first}/fd/0`)).toBe(true);
  flow.socket.end();
  await waitFor("the first has ended", () => !existsSync(`/proc/${first}/fd/0`));
  expect(await isServed(port)).toBe(true);
  await stage.untilNamed({});
});

test("a replaced overlay is followed by its successor only, with the agent beside it", async () => {
  const flow = aClient(port);
  await talk(flow, "before");
  const from = stage.agent.log().length;
  const { stateDir, runDir } = stage.agent;
  for (let round = 0; round < ROUNDS; round += 1) {
    const place = ["--state", join(stateDir, "overlay"), "--run", runDir];
    const successor = startBuiltOverlay(tempDir(), [...place, "--successor"]);
    await waitFor("it took over", () => successor.output().includes("took over"));
    await waitFor("the agent found it", async () => {
      const { overlay } = (await stage.agent.status()).engines;
      return overlay?.state === "up" && overlay.pid === successor.pid;
    });
    expect(await isServed(port)).toBe(true);
  }
  await talk(flow, "after");
  const log = stage.agent.log().slice(from);
  expect(log).not.toContain('"overlay started"');
  expect(log).not.toContain("the overlay exited at its start");
  await stage.untilNamed({});
});

test("with agent and overlay killed, the agent alone restores the service", async () => {
  await stage.agent.end("SIGKILL");
  const flow = aClient(port);
  await talk(flow, "without the agent");
  const first = await killOverlay();
  // Its unit would restart it, as does the agent that has exited.
  endUnitsBelow(dirname(stage.agent.runDir));
  await waitFor("the flow is cut", () => flow.fate() !== undefined);

  // The table on disk is of an unsupported version.
  const table = join(stage.agent.stateDir, "overlay/table.json");
  const body = { format: OVERLAY_FORMAT + 1, version: 99, elsewhere: true };
  const sha256 = createHash("sha256").update(JSON.stringify(body)).digest("hex");
  writeFileSync(table, JSON.stringify({ format: 1, sha256, body }));
  rmSync(`${table}.previous`, { force: true });
  await stage.startAgain();
  await waitFor("it serves", () => isServed(port));
  expect(stage.overlayPid()).not.toBe(first);
  expect(existsSync(`${table}.newer`)).toBe(true);
  const message = expect.stringContaining("is of a newer version than this overlay") as string;
  const mendedAt = expect.any(Number) as number;
  await waitFor("it is mended", async () => (await stage.agent.status()).faults.some((fault) => fault.mendedAt));
  expect((await stage.agent.status()).faults).toMatchObject([{ code: "newer-file", message, mendedAt }]);
  await waitFor("an event reports it", async () =>
    JSON.stringify(await eventsOf(stage.controller, stage.uid)).includes("newer version"),
  );
  await stage.untilNamed({});

  // systemd creates the state directory of a unit.
  if (UNDER_UNITS || !isDue("an unusable state directory of the overlay")) return;
  // And an unusable state directory is reported for that time.
  await stage.agent.end("SIGKILL");
  await killOverlay();
  const directory = join(stage.agent.stateDir, "overlay");
  renameSync(directory, `${directory}.away`);
  writeFileSync(directory, "");
  await stage.startAgain();
  await stage.untilNamed({ gateway: "file-failed", services: "file-failed", connectors: "file-failed" });
  expect(stage.applied()).toMatchObject({ sections: { connectors: { state: "failed" } } });
  rmSync(directory);
  renameSync(`${directory}.away`, directory);
  await waitFor("it serves", () => isServed(port));
  await stage.untilNamed({});
});
