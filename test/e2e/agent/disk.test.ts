import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { changeLocal, readLocal } from "../../support/control-plane/exchange.ts";
import { hastened } from "../../support/fake-time.ts";
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
import { sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { eventsOf, statusWhere, untilOnline, wake } from "../../support/stage.ts";
import { changesBelow } from "../../support/kills/strace.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** Mounts a disk on a directory, for the test. */
function mountDisk(path: string, size: string): void {
  mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size},mode=700`, "holdfast-test", path]);
  onTestFinished(() => void execFileSync("umount", ["-l", path]));
}

function fill(directory: string): () => void {
  const path = join(directory, "filling");
  for (let size = 1 << 20; size > 0; size >>= 1) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(size), { flag: "a" });
    } catch {
      // A smaller piece may still fit.
    }
  }
  return () => rmSync(path);
}

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
const tagged = (agent: AgentProgram, value: string) =>
  statusWhere(agent, `the tag is ${value}`, ({ tags }) => tags["mark"] === value);

async function setTag(controller: ControllerProgram, uid: string, value: string): Promise<void> {
  const { status, body } = await controller.call("PUT", `/node/${uid}/tag/mark`, { value });
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
}

/** A controller and a node whose state is on a disk of its own. */
async function onDisk(size: string, within: readonly string[] = []) {
  const dir = tempDir();
  const port = await freePort();
  const controller = await startController(dir, port);
  const home = join(dir, "node");
  mountDisk(join(home, "state"), size);
  const agent = await startAgent(home, { within });
  const uid = await registerNode(controller, agent, "node");
  await setTag(controller, uid, "first");
  await tagged(agent, "first");
  return { dir, port, controller, home, agent, uid, state: join(home, "state") };
}

test("a full disk affects only what needs a disk, and loses nothing", async () => {
  const { dir, port, controller, home, agent, uid, state } = await onDisk("1m");
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
  const second = await startController(dir, port);
  wake(agent);
  await untilOnline(agent);

  // It starts too, with its last good state.
  await agent.end("SIGKILL");
  const again = await startAgent(home);
  await untilOnline(again);
  expect((await again.status()).tags["mark"]).toBe("second");
  await setTag(second, uid, "third");
  await tagged(again, "third");

  free();
  await waitFor("the disk is reported as good", async () => !(await faultsOf(again)).includes("storage-unavailable"));
  // An installed node is restarted.
  if (!UNDER_UNITS) expect(await restart(second, uid)).toMatchObject(UNMANAGED);
  const events = (await eventsOf(second, uid)).map(({ eventType }) => eventType);
  expect(events).not.toContain("Identity Shared");
  const names = readdirSync(state, { recursive: true, encoding: "utf8" });
  expect(names.filter((name) => /damaged|tmp$/.test(name))).toEqual([]);
});

test("an agent starts from a read-only disk and never writes", async () => {
  const { controller, home, agent, uid, state } = await onDisk("4m");
  await agent.end("SIGKILL");
  // An overlay that is a unit continues without its agent, and writes.
  endUnitsBelow(home);
  const before = contents(state);
  remount(state, "ro");
  const again = await startAgent(home);
  await untilOnline(again);
  const status = await again.status();
  expect(status.tags["mark"]).toBe("first");
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

  const third = await startAgent(home);
  await untilOnline(third);
  expect((await eventsOf(controller, uid)).map(({ eventType }) => eventType)).not.toContain("Identity Shared");
});

const damages: readonly (readonly [string, (content: Buffer) => Buffer])[] = [
  ["cut short", (content) => content.subarray(0, content.length >> 1)],
  ["zeroed", (content) => Buffer.alloc(content.length)],
  ["random", (content) => randomBytes(content.length)],
];

/** Every file that the node stores, without process ids, locks and SQLite's own files. */
function stateFiles(state: string): readonly string[] {
  const names = readdirSync(state, { recursive: true, encoding: "utf8" }).sort();
  // An overlay that is a unit always runs, and does not restart with its agent.
  const own = names.filter((name) => !UNDER_UNITS || !name.startsWith("overlay/"));
  return own.filter((name) => /\.json(\.previous)?$|^state\.db$/.test(name));
}

test("sets any damaged file aside, reports it, and comes back online by itself", async () => {
  const { controller, home, agent, uid, state } = await onDisk("8m");
  await setTag(controller, uid, "second");
  await tagged(agent, "second");
  let running = agent;
  const restart = async (between: () => void): Promise<void> => {
    await running.end();
    between();
    running = await startAgent(home);
    await untilOnline(running);
  };
  // One more start, so that every file has a previous copy.
  await restart(() => undefined);
  const files = stateFiles(state);
  expect(files.length).toBeGreaterThan(15);
  const cases = sampleOf(files, 8, "damaged files").flatMap((file) =>
    sampleOf(damages, 1, file).map(([how, spoil]) => ({ file, path: join(state, file), how, spoil })),
  );
  // Each damage costs a restart, so several share one, but never a file and its previous copy, which are neighbours.
  const rounds = TESTS_ALL ? cases.length : 2;
  for (let round = 0; round < rounds; round += 1) {
    const spoiled = cases.filter((_, at) => at % rounds === round);
    const what = spoiled.map(({ file, how }) => `${file} ${how}`).join(", ");
    await restart(() => {
      for (const { path, spoil } of spoiled) writeFileSync(path, spoil(readFileSync(path)));
    });
    const faults = await waitFor(`${what}: rebuilt`, async () => {
      const { faults: all } = await running.status();
      return all.every(({ mendedAt }) => mendedAt !== undefined) && all;
    });
    expect(faults, what).toHaveLength(spoiled.length);
    for (const { file, path } of spoiled) {
      expect(faults, what).toContainEqual({
        code: "damaged-file",
        message: expect.stringContaining(`${file} was damaged`) as string,
        since: expect.any(Number) as number,
        mendedAt: expect.any(Number) as number,
      });
      expect(existsSync(`${path}.damaged`), what).toBe(true);
      rmSync(`${path}.damaged`);
    }
    await tagged(running, "second");
  }
  const startups = async () =>
    (await eventsOf(controller, uid)).filter(({ eventType }) => eventType === "Node Startup Error");
  // It stays open until a start without faults.
  const [startup] = await waitFor("the damage is an event", async () => {
    const found = await startups();
    return found.length === 1 && found;
  });
  expect(JSON.stringify(startup?.details)).toContain(cases[0]?.file);
  await restart(() => undefined);
  expect((await running.status()).faults).toEqual([]);

  // The record of the event's end must stay intact, or the event is new.
  const newest = files.filter((file) => file.endsWith(".json") && file !== "reported/open-events.json");
  await restart(() => newest.forEach((file) => writeFileSync(join(state, file), "damaged")));
  const all = await waitFor("all damage is an event", async () => {
    const found = await startups();
    return found.length > 2 && JSON.stringify(found.map(({ details }) => details));
  });
  for (const file of newest) expect(all).toContain(`${file} was damaged`);
  expect((await eventsOf(controller, uid)).map(({ eventType }) => eventType)).not.toContain("Identity Shared");
}, 600_000);

test("reports a damaged write-ahead log, which SQLite ignores, and with both copies of a file damaged, recovers what it can and reports the rest", async () => {
  const { controller, home, agent, uid, state } = await onDisk("8m");
  // The first run's data is in the database itself when the second starts.
  await agent.end();
  const second = await startAgent(home);
  await untilOnline(second);
  for (let i = 0; i < 3; i += 1) expect((await ping(controller, uid)).status).toBe(200);
  await second.end("SIGKILL");
  const path = join(state, "state.db-wal");
  const log = readFileSync(path);
  // The first byte of the first page, after the headers of the log and of the frame.
  log[32 + 24] = ~(log[32 + 24] ?? 0);
  writeFileSync(path, log);
  const again = await startAgent(home);
  const { faults } = await untilOnline(again);
  expect(faults.map(({ code, message }) => [code, message.slice(0, 25)])).toEqual([
    ["damaged-file", "state.db-wal was damaged;"],
  ]);
  expect(readFileSync(`${path}.damaged`).equals(log)).toBe(true);
  await again.end();

  const spoil = (...names: readonly string[]): void => {
    for (const name of names)
      for (const copy of [name, `${name}.previous`]) writeFileSync(join(state, copy), "damaged");
  };
  spoil("desired/node.json", "desired/floors.json", "reported/shadow.json", "identity/counter.json");
  const fetching = await startAgent(home);
  await untilOnline(fetching);
  await tagged(fetching, "first");
  expect(await faultsOf(fetching)).toEqual(Array(4).fill("damaged-file"));

  // Without its registration the node registers with the same license again, as the same node.
  await fetching.end();
  spoil("identity/registration.json");
  const nameless = await startAgent(home);
  expect((await nameless.status()).node).toBeNull();
  const license = join(home, "node.license");
  const registered = await changeLocal(nameless.runDir, "/v1/register", { license: readFileSync(license, "utf8") });
  expect(registered.status).toBe(200);
  expect((await untilOnline(nameless)).node?.uid).toBe(uid);

  // Without its private keys nothing can be this node: it reports it and keeps running.
  await nameless.end();
  spoil("identity/keys.json");
  const keyless = await startAgent(home);
  expect(await faultsOf(keyless)).toEqual(["damaged-file", "identity-lost"]);
  expect(await keyless.status()).toMatchObject({ node: { uid }, session: { reason: { code: "identity-lost" } } });
  expect(await readLocal(keyless.runDir, "/v1/why")).toMatchObject({
    reasons: [{ section: "node", code: "identity-lost" }, {}],
  });
  const refused = await holdfast(["register", license, "--state", state, "--run", keyless.runDir]);
  expect(refused.stderr).toMatch(/identity-lost[\s\S]*holdfast reset/);
  expect((await controller.call("GET", `/node/${uid}`)).body).toMatchObject({ online: false });
});

/** Speed of the node's clock. */
const HASTE = 6;

test("an idle online node writes nothing for a minute, and an event at once", async () => {
  const { controller, agent, uid, state } = await onDisk("8m", hastened(HASTE));
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
  const registering = (text: string) => holdfast(["register", "-", "--state", state, "--run", join(dir, "none")], text);
  const { code, stderr } = await registering(license);
  expect([code, stderr]).toEqual([1, expect.stringContaining("the database cannot be written") as string]);
  expect((await agent.status()).session.state).toBe("online");
  free();
  expect((await put()).status).toBe(200);
  expect((await registering(license)).code).toBe(0);
  await controller.end();

  const start = () => holdfast(["controller", "--listen", `127.0.0.1:${port}`, "--data", data]);
  const unfill = fill(data);
  const full = await start();
  expect([full.code, full.stderr]).toEqual([1, expect.stringContaining(join(data, "controller.db")) as string]);
  unfill();
  for (const name of ["controller.db", "keys/signing.jwk", "keys/api-token.jwk"]) {
    const path = join(data, name);
    const good = readFileSync(path);
    for (const [how, spoil] of sampleOf(damages, 1, name)) {
      const bad = spoil(good);
      writeFileSync(path, bad);
      const ended = await start();
      expect([ended.code, ended.stderr], `${name} ${how}`).toEqual([1, expect.stringContaining(path) as string]);
      expect(readFileSync(path).equals(bad), `${name} ${how}`).toBe(true);
    }
    writeFileSync(path, good, { mode: 0o600 });
  }
  const again = await startController(dir, port, ["--run", join(dir, "run")]);
  wake(agent);
  await untilOnline(agent);
  expect(((await again.call("GET", "/node")).body as unknown[]).length).toBe(2);
});
