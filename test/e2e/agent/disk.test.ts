import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { registerOffline } from "../../../src/agent/offline/offline.ts";
import { hastened } from "../../support/fake-time.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  holdfast,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { endUnitsBelow, UNDER_UNITS } from "../../support/machine/real-units.ts";
import { DAMAGES, fill, mountDisk, onDisk, setTag, stateFiles, tagged } from "../../support/machine/state-disk.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { eventsOf, statusWhere, untilOnline, wake } from "../../support/stage.ts";
import { changesBelow } from "../../support/kills/strace.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

function remount(path: string, how: "ro" | "rw"): void {
  execFileSync("mount", ["-o", `remount,${how}`, path]);
}

/** Returns everything on a disk, for comparison. */
function contents(directory: string): Readonly<Record<string, string>> {
  const names = readdirSync(directory, { recursive: true, encoding: "utf8" }).sort();
  const files = names.filter((name) => statSync(join(directory, name)).isFile());
  return Object.fromEntries(files.map((name) => [name, readFileSync(join(directory, name)).toString("base64")]));
}

const trigger = (controller: ControllerProgram, uid: string, event: string, body: object = {}) =>
  controller.call("POST", `/node/${uid}/trigger/${event}?wait=1`, body);
const ping = (controller: ControllerProgram, uid: string) =>
  trigger(controller, uid, "tg-ping", { host: "127.0.0.1", count: 1 });
const restart = (controller: ControllerProgram, uid: string) => trigger(controller, uid, "node-restart-service");
/** The refusal of a restart that nothing but this installation prevents. */
const UNMANAGED = { status: 422, body: [expect.stringContaining("this is not a managed install")] };
const removeImage = (controller: ControllerProgram, uid: string) =>
  trigger(controller, uid, "container-image", { action: "delete", image: "no/such" });
const faultsOf = async (agent: AgentProgram) => (await agent.status()).faults.map(({ code }) => code);

/** Speed of the node's clock. */
const HASTE = 6;
/** One node for the first three tests: its disk is idle, full, and read-only. */
let node: Awaited<ReturnType<typeof onDisk>>;
/** Its programs that run. */
let controller: ControllerProgram;
let agent: AgentProgram;
const onFinished = fileEnd();

beforeAll(async () => {
  node = await onDisk("1m", { within: hastened(HASTE), onFinished });
  ({ controller, agent } = node);
});

test("an idle online node writes nothing for a minute, and an event at once", async () => {
  const { uid, state } = node;
  const newest = (): number => Math.max(...stateFiles(state).map((name) => statSync(join(state, name)).mtimeMs));
  await waitFor("the start is over", () => newest() < Date.now() - 3000);
  const { uptimeSeconds } = await agent.status();
  const seen = await changesBelow(
    agent.pid,
    state,
    async () => void (await statusWhere(agent, "a minute is over", (now) => now.uptimeSeconds > uptimeSeconds + 60)),
  );
  expect(seen).toEqual([]);
  expect((await controller.call("GET", `/node/${uid}`)).body).toMatchObject({ online: true });
  const busy = await changesBelow(agent.pid, state, async () => {
    await setTag(controller, uid, "changed");
    await tagged(agent, "changed");
  });
  expect(busy).toContain("rename STATE/desired/node.json.tmp");
});

test("a full disk affects only what needs a disk, and loses nothing", async () => {
  const { dir, port, home, uid, state } = node;
  const free = fill(state);
  await setTag(controller, uid, "second");
  await waitFor("the disk is reported", async () => (await faultsOf(agent)).includes("storage-unavailable"));
  // Its configuration has a reserve, and so has the journal.
  await tagged(agent, "second");
  expect(await ping(controller, uid)).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  if (!UNDER_UNITS) expect(await restart(controller, uid)).toMatchObject(UNMANAGED);
  expect((await removeImage(controller, uid)).body).not.toMatchObject({ code: "storage-unavailable" });
  const health = await agent.health();
  expect([health.verdict, health.items.find(({ name }) => name === "state")?.status]).toEqual(["failed", "fail"]);

  // The session is lost and returns: its counter cannot be written either.
  await controller.end("SIGKILL");
  controller = await startController(dir, port, [], { onFinished });
  wake(agent);
  await untilOnline(agent);

  // It starts too, with its last good state.
  await agent.end("SIGKILL");
  agent = await startAgent(home, { onFinished });
  await untilOnline(agent);
  expect((await agent.status()).tags["mark"]).toBe("second");
  await setTag(controller, uid, "third");
  await tagged(agent, "third");

  free();
  await waitFor("the disk is reported as good", async () => !(await faultsOf(agent)).includes("storage-unavailable"));
  // An installed node is restarted.
  if (!UNDER_UNITS) expect(await restart(controller, uid)).toMatchObject(UNMANAGED);
  const events = (await eventsOf(controller, uid)).map(({ eventType }) => eventType);
  expect(events).not.toContain("Identity Shared");
  const names = readdirSync(state, { recursive: true, encoding: "utf8" });
  expect(names.filter((name) => /damaged|tmp$/.test(name))).toEqual([]);
});

test.runIf(isDue("read-only disk"))("an agent starts from a read-only disk and never writes", async () => {
  const { home, uid, state } = node;
  const { tags } = await agent.status();
  await agent.end("SIGKILL");
  // An overlay that is a unit continues without its agent, and writes.
  endUnitsBelow(home);
  const before = contents(state);
  remount(state, "ro");
  const again = await startAgent(home, { onFinished });
  await untilOnline(again);
  const status = await again.status();
  expect(status.tags).toEqual(tags);
  expect(status.faults.map(({ code }) => code)).toEqual(["storage-unavailable"]);
  expect(await ping(controller, uid)).toMatchObject({ status: 200 });
  expect((await removeImage(controller, uid)).body).not.toMatchObject({ code: "storage-unavailable" });
  if (!UNDER_UNITS) expect(await restart(controller, uid)).toMatchObject(UNMANAGED);
  expect((await trigger(controller, uid, "node-push-logs")).body).toMatchObject({ code: "storage-unavailable" });
  const { status: put } = await controller.call("PUT", `/node/${uid}`, { state: "INACTIVE" });
  expect(put).toBe(200);
  await statusWhere(again, "it is INACTIVE, from memory", ({ nodeState }) => nodeState === "INACTIVE");
  await again.end("SIGKILL");
  expect(contents(state)).toEqual(before);

  const third = await startAgent(home, { onFinished });
  await untilOnline(third);
  expect((await eventsOf(controller, uid)).map(({ eventType }) => eventType)).not.toContain("Identity Shared");
});

test("a controller on a full disk refuses what it cannot store and reports why, and one with damaged files does not start", async () => {
  const dir = tempDir();
  const port = await freePort();
  const data = join(dir, "controller");
  mountDisk(data, "2m");
  const controller = await startController(dir, port, ["--run", join(dir, "run")]);
  const agent = await startAgent(join(dir, "node"));
  const uid = await registerNode(controller, agent, "node");
  const license = await controller.license("late");
  const free = fill(data);
  const put = () => controller.call("PUT", `/node/${uid}/tag/mark`, { value: "x".repeat(100) });
  const refused = await waitFor("a refusal", async () => {
    const answer = await put();
    return answer.status === 200 ? undefined : answer;
  });
  expect(refused).toMatchObject({ status: 507, body: { code: "storage-unavailable" } });
  const state = join(dir, "late");
  const args = ["register", "-", "--state", state, "--run", join(dir, "none")];
  const { code, stderr } = await holdfast(args, license);
  expect([code, stderr]).toEqual([1, expect.stringContaining("the database cannot be written") as string]);
  expect((await agent.status()).session.state).toBe("online");
  free();
  expect((await put()).status).toBe(200);
  await registerOffline(state, license, new AbortController().signal);
  await controller.end();

  /** Starts it on data in which nothing may change. */
  const refusal = async (of: string, path: string, what: string): Promise<void> => {
    const bad = readFileSync(path);
    const ended = await holdfast(["controller", "--listen", `127.0.0.1:${port}`, "--data", of]);
    expect([ended.code, ended.stderr], what).toEqual([1, expect.stringContaining(path) as string]);
    expect(readFileSync(path).equals(bad), what).toBe(true);
  };
  const files = sampleOf(["controller.db", "keys/signing.jwk", "keys/api-token.jwk"], 1, "damaged files");
  const damaged = files.flatMap((name) =>
    sampleOf(DAMAGES, 1, name).map(([how, spoil], at) => {
      const copy = join(dir, `${name.replace("/", "-")}-${at}`);
      cpSync(data, copy, { recursive: true });
      const path = join(copy, name);
      writeFileSync(path, spoil(readFileSync(path)));
      return refusal(copy, path, `${name} ${how}`);
    }),
  );
  const unfill = fill(data);
  await Promise.all([refusal(data, join(data, "controller.db"), "full"), ...damaged]);
  unfill();
  const again = await startController(dir, port, ["--run", join(dir, "run")]);
  wake(agent);
  await untilOnline(agent);
  expect(((await again.call("GET", "/node")).body as unknown[]).length).toBe(2);
});
