import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import type { EngineCache, EngineChange } from "../../../src/host/engine/cache.ts";
import type { Engine, PullOptions } from "../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { openEngineCache } from "../../../src/host/engine/open-cache.ts";
import { startEngine, type TestEngine } from "../../support/containers/docker-engine.ts";
import { startEngineProxy, type EngineProxy } from "../../support/containers/engine-proxy.ts";
import { FaultProxy } from "../../support/network/fault-proxy.ts";
import { makeImage } from "../../support/containers/images.ts";
import { freePort } from "../../support/machine/programs.ts";
import { pushImage, startRegistry, type TestRegistry } from "../../support/containers/registry.ts";
import { waitFor } from "../../support/wait-for.ts";

const OWNER = "io.holdfast.owner=one";
const LABELS = { "io.holdfast.owner": "one" };
const USER = { name: "user", password: "hunter2-hunter2" };
const { signal } = new AbortController();

let dir: string;
let real: TestEngine;
let proxy: EngineProxy;
let engine: Engine;
let registry: TestRegistry;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "hf-"));
  real = await startEngine({ network: "shared", liveRestore: true, args: ["--max-download-attempts=1"] });
  proxy = await startEngineProxy(join(dir, "proxy.sock"), real.socketPath);
  engine = hostEngine({ socketPath: proxy.socketPath, clock: hasty() });
  await makeImage(real, { tag: "busybox:1", command: ["sleep", "1000"] });
  registry = await startRegistry(join(dir, "registry"), { user: USER });
  const noise = Buffer.from(Array.from({ length: 4_000_000 }, (_, at) => (at * 2_654_435_761) >>> 11));
  await makeImage(real, { tag: "large:1", layers: [[{ path: "noise", data: noise }]] });
  for (const [image, name] of [
    ["busybox:1", "small"],
    ["large:1", "large"],
  ] as const) {
    await pushImage(real, image, { repository: `${registry.host}/team/${name}`, tag: "1" }, USER);
  }
  await engine.removeImage("large:1", signal);
});

afterEach(() => proxy.heal());

afterAll(async () => {
  await proxy.close();
  await registry.stop();
  await real.stop();
  rmSync(dir, { recursive: true, force: true });
});

/** A clock that shortens all times. */
function hasty(times = 10): Clock {
  const clock = systemClock();
  return { ...clock, after: (ms, run) => clock.after(ms / times, run) };
}

function openCache(times = 10): { readonly cache: EngineCache; readonly changes: EngineChange[] } {
  const cache = openEngineCache({ engine, clock: hasty(times), owner: OWNER });
  const changes: EngineChange[] = [];
  cache.onChange((change) => void changes.push(change));
  onTestFinished(() => cache.close());
  return { cache, changes };
}

async function runOne(name: string): Promise<string> {
  const { id } = await engine.createContainer(
    name,
    { Image: "busybox:1", Labels: LABELS, HostConfig: { NetworkMode: "none" } },
    signal,
  );
  await engine.startContainer(id, signal);
  onTestFinished(() => engine.removeContainer(id, { force: true }, signal));
  return id;
}

const isWell = (cache: EngineCache) => () => cache.standing.state === "well";
const isUnwell = (cache: EngineCache) => () => cache.standing.state === "unwell";

test("the cache follows a container by its events, with a request for its creation and its start only", async () => {
  const { cache, changes } = openCache();
  await waitFor("the engine is well", isWell(cache));
  proxy.forget();
  const id = await runOne("followed");
  await waitFor("it runs", () => cache.containers.get(id)?.state === "running");
  await engine.killContainer(id, "SIGKILL", signal);
  await waitFor("it has ended", () => cache.containers.get(id)?.state === "exited");
  expect(cache.containers.get(id)).toMatchObject({ name: "followed", labels: LABELS, exitCode: 137 });
  expect(changes).toContainEqual({ kind: "event", id, action: "die", exitCode: 137 });
  expect(proxy.count("GET", /^\/containers\//)).toBe(2);
  await engine.removeContainer(id, { force: true }, signal);
  await waitFor("it is removed", () => cache.containers.size === 0);
});

test("detects a crash of the engine, whose containers continue and are recognized again", async () => {
  const id = await runOne("survivor");
  const { cache, changes } = openCache();
  await waitFor("it is known", () => cache.containers.get(id)?.state === "running");
  const before = await engine.inspectContainer(id, signal);
  await real.end("SIGKILL");
  await waitFor("the engine is unwell", isUnwell(cache));
  expect(cache.containers.get(id)?.state).toBe("running");
  await expect(engine.listContainers([OWNER], signal)).rejects.toMatchObject({ code: "engine-unwell" });
  await real.start();
  await waitFor("the engine is well", isWell(cache));
  expect(cache.containers.get(id)?.state).toBe("running");
  expect(await engine.inspectContainer(id, signal)).toMatchObject({ pid: before?.pid, startedAt: before?.startedAt });
  expect(changes.filter(({ kind }) => kind === "standing").length).toBeGreaterThanOrEqual(3);
  await engine.killContainer(id, "SIGKILL", signal);
  await waitFor("its events are heard again", () => cache.containers.get(id)?.state === "exited");
});

test("a frozen engine is unhealthy within the deadline, and healthy again when it continues", async () => {
  const id = await runOne("frozen");
  const { cache } = openCache();
  await waitFor("it is known", () => cache.containers.has(id));
  const direct = hostEngine({ socketPath: real.socketPath, clock: hasty() });
  await direct.ping(signal);
  real.freeze();
  onTestFinished(() => real.thaw());
  await expect(direct.listContainers([], signal)).rejects.toMatchObject({ code: "timeout" });
  await waitFor("the engine is unwell", isUnwell(cache));
  expect(cache.standing).toMatchObject({ reason: expect.stringMatching("did not respond") as string });
  real.thaw();
  await waitFor("the engine is well", isWell(cache));
});

test("distinguishes an engine that answers 500 with and without a message", async () => {
  proxy.set({ kind: "answer", status: 500 });
  await expect(engine.listImages(signal)).rejects.toMatchObject({ code: "engine-unwell" });
  proxy.heal();
  await engine.version(signal);
  proxy.set({ kind: "answer", status: 500, body: '{"message":"disk is on fire"}' });
  await expect(engine.listContainers([], signal)).rejects.toMatchObject({
    code: "engine-refused",
    details: { status: 500 },
    message: "cannot list containers: disk is on fire",
  });
  const { cache } = openCache();
  await waitFor("the engine is unwell", isUnwell(cache));
  expect(cache.standing).toMatchObject({ reason: expect.stringContaining("disk is on fire") as string });
  proxy.heal();
  await waitFor("the engine is well", isWell(cache));
});

test("a hanging engine delays nobody for longer than the deadline, and gets one list at a time", async () => {
  const { cache } = openCache();
  await waitFor("the engine is well", isWell(cache));
  proxy.forget();
  proxy.set({ kind: "hang" });
  const requested = await Promise.allSettled(Array.from({ length: 20 }, () => cache.refresh(signal)));
  expect(requested.every(({ status }) => status === "rejected")).toBe(true);
  expect(proxy.count("GET", /^\/containers\/json/)).toBeLessThanOrEqual(2);
  const impatient = AbortSignal.abort(new Error("enough"));
  await expect(engine.inspectContainer("x1", impatient)).rejects.toThrow("enough");
});

test("answers cut in the middle are never accepted as complete", async () => {
  const id = await runOne("cut");
  proxy.set({ kind: "cut", afterBytes: 20 });
  await expect(engine.listContainers([], signal)).rejects.toMatchObject({ code: "engine-unwell" });
  await expect(engine.inspectContainer(id, signal)).rejects.toMatchObject({ code: "engine-unwell" });
});

test("the list detects a silent stream of events", async () => {
  const { cache } = openCache(100);
  await waitFor("the engine is well", isWell(cache));
  proxy.forget();
  proxy.set({ kind: "silence" }, ({ path }) => path.startsWith("/events"));
  const id = await runOne("unheard");
  await waitFor("the list finds it", () => cache.containers.get(id)?.state === "running");
  proxy.heal();
  await waitFor("another stream is opened", () => proxy.count("GET", /^\/events/) > 0);
  await engine.killContainer(id, "SIGKILL", signal);
  await waitFor("its events are heard", () => cache.containers.get(id)?.state === "exited");
});

const pulling = (password: string | undefined, lines: string[] = []): PullOptions => ({
  platform: "",
  credential: password === undefined ? undefined : { username: USER.name, password, server: registry.host },
  onProgress: ({ status }) => void lines.push(status),
});

test("pulls with the right credential, and reports a registry's refusal of any other", async () => {
  const reference = `${registry.host}/team/large:1`;
  const lines: string[] = [];
  await engine.pull(reference, pulling(USER.password, lines), signal);
  expect(lines.join("\n")).toContain("Pull complete");
  expect(await engine.inspectImage(reference, signal)).toMatchObject({ tags: [reference] });
  await engine.removeImage(reference, signal);

  for (const password of [undefined, "wrong-wrong"]) {
    const failed = await engine.pull(reference, pulling(password), signal).catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: "pull-unauthorized" });
    expect(String(failed)).not.toMatch(/wrong-wrong|hunter2/);
  }
  const missing = [
    `${registry.host}/team/large:9`,
    `${registry.host}/team/none:1`,
    `${registry.host}/team/large@sha256:${"0".repeat(64)}`,
  ];
  for (const one of missing) {
    await expect(engine.pull(one, pulling(USER.password), signal)).rejects.toMatchObject({ code: "pull-not-found" });
  }
  const nobody = `127.0.0.1:${await freePort()}/x:1`;
  await expect(engine.pull(nobody, pulling(undefined), signal)).rejects.toMatchObject({ code: "pull-failed" });
});

test("a terminal whose size the engine refuses leaves no process behind", async () => {
  const body = { Image: "busybox:1", Cmd: ["sleep", "1000"], Labels: LABELS };
  const { id } = await engine.createContainer("unsized", body, signal);
  await engine.startContainer(id, signal);
  onTestFinished(async () => engine.removeContainer(id, { force: true }, signal));
  proxy.set({ kind: "answer", status: 500 }, ({ path }) => path.includes("/resize"));
  const requested = { command: ["sleep", "2002"], user: undefined, columns: 80, rows: 24 };
  const patient = hostEngine({ socketPath: proxy.socketPath, clock: systemClock() });
  await expect(patient.terminal(id, requested, signal)).rejects.toMatchObject({ code: "engine-unwell" });
  await waitFor("the command has ended", async () => {
    const { ExecIDs } = (await real.call("GET", `/containers/${id}/json`)).body as { ExecIDs: string[] | null };
    const commands = await Promise.all((ExecIDs ?? []).map((exec) => real.call("GET", `/exec/${exec}/json`)));
    return commands.every(({ body }) => !(body as { Running: boolean }).Running);
  });
});

test("forty terminals, one after the other, all open and end", async () => {
  const body = { Image: "busybox:1", Cmd: ["sleep", "1000"], Labels: LABELS };
  const { id } = await engine.createContainer("forty", body, signal);
  await engine.startContainer(id, signal);
  onTestFinished(async () => engine.removeContainer(id, { force: true }, signal));
  const patient = hostEngine({ socketPath: proxy.socketPath, clock: systemClock() });
  const requested = { command: ["sh", "-c", "exit 7"], user: undefined, columns: 80, rows: 24 };
  const codes: unknown[] = [];
  for (let nth = 0; nth < 40; nth += 1) {
    const ended = patient.terminal(id, requested, signal).then((terminal) => {
      terminal.stream.resume();
      return terminal.exitCode(signal);
    });
    codes.push(await ended.catch(String));
  }
  expect(codes).toEqual(Array.from({ length: 40 }, () => 7));
});

test("a pull cut by the registry or the engine fails, and works when repeated", async () => {
  const port = await freePort();
  const between = await FaultProxy.start(port, registry.port);
  const reference = `127.0.0.1:${port}/team/large:1`;
  await between.set({ kind: "cut", afterBytes: 20_000, by: "reset" });
  const cutting = engine.pull(reference, pulling(USER.password), signal);
  const refused = cutting.catch((error: unknown) => error);
  expect(await refused).toMatchObject({ code: "pull-failed" });
  await between.set({ kind: "pass" });

  proxy.set({ kind: "cut", afterBytes: 30 }, ({ path }) => path.startsWith("/images/create"));
  await expect(engine.pull(reference, pulling(USER.password), signal)).rejects.toMatchObject({ code: "engine-unwell" });
  proxy.heal();
  await engine.pull(reference, pulling(USER.password), signal);
  await engine.removeImage(reference, signal);
  const rateLimited =
    '{"status":"Pulling"}\n{"errorDetail":{"message":"toomanyrequests: slow down"},"error":"toomanyrequests: slow down"}\n';
  proxy.set({ kind: "answer", status: 200, body: rateLimited });
  await expect(engine.pull(reference, pulling(undefined), signal)).rejects.toMatchObject({ code: "pull-rate-limited" });
});

test("a missing engine is unhealthy, and costs nothing until a request", async () => {
  const absent = hostEngine({ socketPath: join(dir, "absent.sock"), clock: hasty() });
  await expect(absent.ping(signal)).rejects.toMatchObject({
    code: "engine-unwell",
    message: expect.stringMatching("not running") as string,
  });
  await expect(absent.listContainers([], signal)).rejects.toMatchObject({ code: "engine-unwell" });
});

test("a closed cache holds no connection", async () => {
  const { cache } = openCache();
  await waitFor("the engine is well", isWell(cache));
  await runOne("left");
  cache.close();
  await waitFor("all is closed", () => proxy.openConnections === 0);
  expect(cache.containers.size).toBe(0);
});
