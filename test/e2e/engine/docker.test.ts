import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import type { Engine, OutputFrame } from "../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { startEngine, type TestEngine } from "../../support/containers/docker-engine.ts";
import { makeImage } from "../../support/containers/images.ts";
import { waitFor } from "../../support/wait-for.ts";

const OWNER = "io.holdfast.owner=one";
const LABELS = { "io.holdfast.owner": "one" };
const { signal } = new AbortController();

let dir: string;
let real: TestEngine;
let engine: Engine;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "hf-"));
  real = await startEngine();
  engine = hostEngine({ socketPath: real.socketPath, clock: systemClock() });
  await makeImage(real, { tag: "busybox:1", command: ["sleep", "1000"] });
});

afterAll(async () => {
  await real.stop();
  rmSync(dir, { recursive: true, force: true });
});

async function started(name: string, body: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const { id } = await engine.createContainer(name, { Image: "busybox:1", Labels: LABELS, ...body }, signal);
  await engine.startContainer(id, signal);
  return id;
}

async function gathered(frames: AsyncIterable<OutputFrame>): Promise<Record<OutputFrame["stream"], string>> {
  const parts: Record<OutputFrame["stream"], Buffer[]> = { stdout: [], stderr: [] };
  for await (const { stream, data } of frames) parts[stream].push(data);
  return { stdout: Buffer.concat(parts.stdout).toString(), stderr: Buffer.concat(parts.stderr).toString() };
}

test("reports its version and its features", async () => {
  const version = await engine.version(signal);
  expect(version.product).toBe("docker");
  expect(version.apiVersion).toMatch(/^1\.\d+$/);
  const info = await engine.info(signal);
  expect(info).toMatchObject({ rootDirectory: real.dataRoot, cgroupDriver: "cgroupfs" });
  expect(info.cpus).toBeGreaterThan(0);
  expect(info.memoryBytes).toBeGreaterThan(1e8);
  await engine.ping(signal);
});

test("a container lives from creation to removal", async () => {
  const { id, warnings } = await engine.createContainer(
    "life",
    { Image: "busybox:1", Labels: LABELS, HostConfig: { Memory: 64e6 } },
    signal,
  );
  expect(warnings).toEqual(expect.any(Array));
  expect(await engine.inspectContainer(id, signal)).toMatchObject({
    state: "created",
    pid: 0,
    startedAt: 0,
    exitCode: undefined,
  });
  await engine.startContainer(id, signal);
  await engine.startContainer(id, signal);
  const running = await engine.inspectContainer("life", signal);
  expect(running).toMatchObject({
    id,
    name: "life",
    image: "busybox:1",
    labels: LABELS,
    state: "running",
    exitCode: undefined,
  });
  expect(running?.startedAt).toBeGreaterThan(Date.now() - 60_000);
  // Until it becomes the command, the process is the runtime's own.
  const command = () => readFileSync(`/proc/${running?.pid}/cmdline`, "utf8");
  await expect.poll(command).toBe("sleep\x001000\x00");
  const [listed, ...others] = await engine.listContainers([OWNER], signal);
  expect(others).toEqual([]);
  expect(listed).toMatchObject({
    id,
    name: "life",
    state: "running",
    imageId: running?.imageId,
    addresses: running?.addresses,
  });
  expect(Object.values(listed?.addresses ?? {})).toEqual([expect.stringMatching(/^\d+\.\d+\.\d+\.\d+$/)]);
  expect(await engine.listContainers(["io.holdfast.owner=two"], signal)).toEqual([]);

  await engine.updateContainer(id, { Memory: 96e6 }, signal);
  await engine.renameContainer(id, "other", signal);
  await engine.killContainer(id, "SIGKILL", signal);
  await waitFor("it has ended", async () => (await engine.inspectContainer(id, signal))?.state === "exited");
  expect(await engine.listContainers([OWNER], signal)).toMatchObject([
    { name: "other", state: "exited", exitCode: 137 },
  ]);
  await engine.removeContainer(id, { force: false }, signal);
  await engine.removeContainer(id, { force: false }, signal);
  expect(await engine.inspectContainer(id, signal)).toBeUndefined();
});

test("stops by a signal first, and kills what ignores it", async () => {
  const script = "trap 'exit 7' TERM; while true; do sleep 0.1; done";
  const polite = await started("polite", { Cmd: ["sh", "-c", script] });
  const deaf = await started("deaf", { Cmd: ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"] });
  await waitFor("the traps are set", async () => {
    const pids = await Promise.all([polite, deaf].map(async (id) => (await engine.inspectContainer(id, signal))?.pid));
    return pids.every(
      (pid) =>
        readdirSync(`/proc/${pid}/task/${pid}`).length > 0 &&
        readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8") !== "",
    );
  });
  await Promise.all([engine.stopContainer(polite, 20, signal), engine.stopContainer(deaf, 1, signal)]);
  expect(await engine.inspectContainer(polite, signal)).toMatchObject({ state: "exited", exitCode: 7 });
  expect(await engine.inspectContainer(deaf, signal)).toMatchObject({ state: "exited", exitCode: 137 });
  await engine.stopContainer(polite, 1, signal);
  for (const id of [polite, deaf]) await engine.removeContainer(id, { force: true }, signal);
});

test("reports a refusal of the engine with its status, without the value of a variable", async () => {
  const wrong = {
    Image: "busybox:1",
    Env: ["=hunter2hunter2", "TOKEN=s3cr3t-value"],
    HostConfig: { Binds: ["/x:s3cr3t-value"] },
  };
  const refused = await engine.createContainer("wrong", wrong, signal).catch((error: unknown) => error);
  expect(refused).toMatchObject({ code: "engine-refused", details: { status: 400 } });
  expect(JSON.stringify([String(refused), refused])).not.toMatch(/hunter2|s3cr3t/);
  await expect(engine.startContainer("nobody", signal)).rejects.toMatchObject({
    code: "engine-refused",
    details: { status: 404 },
  });
  await expect(engine.createContainer("x1", { Image: "absent:9" }, signal)).rejects.toMatchObject({
    details: { status: 404 },
  });
});

test("health is in the list and in the detail", async () => {
  const healthcheck = { Test: ["CMD", "test", "!", "-e", "/tmp/ill"], Interval: 2e8, Retries: 1, Timeout: 5e9 };
  const id = await started("health", { Healthcheck: healthcheck });
  const health = async (): Promise<unknown> =>
    (await engine.listContainers([OWNER], signal)).find((one) => one.id === id)?.health;
  await waitFor("it is healthy", async () => (await health()) === "healthy");
  const terminal = await engine.terminal(
    id,
    { command: ["touch", "/tmp/ill"], user: undefined, columns: 80, rows: 24 },
    signal,
  );
  terminal.stream.resume();
  await waitFor("it is unhealthy", async () => (await health()) === "unhealthy");
  expect(await engine.inspectContainer(id, signal)).toMatchObject({ health: "unhealthy" });
  await engine.removeContainer(id, { force: true }, signal);
});

test("logs are those of the current run, by their stream", async () => {
  const id = await started("logs", {
    Cmd: ["sh", "-c", "for i in 1 2 3; do echo out$i; echo err$i >&2; done; date +%s >&2"],
  });
  await waitFor("it has ended", async () => (await engine.inspectContainer(id, signal))?.state === "exited");
  const ended = (await engine.inspectContainer(id, signal))?.finishedAt ?? 0;
  await waitFor("the runs are apart", () => Date.now() > ended + 2000);
  await engine.startContainer(id, signal);
  await waitFor("it has ended again", async () => (await engine.inspectContainer(id, signal))?.state === "exited");
  const all = await gathered(engine.logs(id, { follow: false, tail: undefined }, signal));
  expect(all.stdout).toBe("out1\nout2\nout3\n");
  expect(all.stderr).toMatch(/^err1\nerr2\nerr3\n\d+\n$/);
  const last = await gathered(engine.logs(id, { follow: true, tail: 1 }, signal));
  expect(last.stdout + last.stderr).toMatch(/^(out3|\d+)\n$/);
  const stamped = await gathered(engine.logs(id, { follow: false, tail: undefined, timestamps: true }, signal));
  expect(stamped.stdout).toMatch(/^\d{4}-\d\d-\d\dT\S+Z out1\n/);
  await engine.removeContainer(id, { force: true }, signal);
});

test("followed logs arrive as they are written, and end with the container or with the reader", async () => {
  const id = await started("follow", {
    Cmd: ["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; echo late; sleep 1000"],
  });
  const received: string[] = [];
  const following = (async () => {
    for await (const { data } of engine.logs(id, { follow: true, tail: undefined }, signal))
      received.push(data.toString());
  })();
  const terminal = await engine.terminal(
    id,
    { command: ["touch", "/tmp/go"], user: undefined, columns: 80, rows: 24 },
    signal,
  );
  terminal.stream.resume();
  await waitFor("it is heard", () => received.join("") === "late\n");
  const reader = new AbortController();
  const abandoned = gathered(engine.logs(id, { follow: true, tail: undefined }, reader.signal));
  reader.abort(new Error("enough"));
  await expect(abandoned).rejects.toThrow("enough");
  await engine.killContainer(id, "SIGKILL", signal);
  await following;
  await engine.removeContainer(id, { force: true }, signal);
});

test("separates large output of both streams exactly", async () => {
  const script = "(seq 1 60000; seq 60001 120000 >&2) & (seq 200001 260000 >&2); wait";
  const { id } = await engine.createContainer(
    "large",
    { Image: "busybox:1", Cmd: ["sh", "-c", script], Labels: LABELS },
    signal,
  );
  const joined = gathered(await engine.attach(id, signal));
  await engine.startContainer(id, signal);
  const live = await joined;
  const count = (from: number, to: number): string =>
    Array.from({ length: to - from + 1 }, (_, at) => `${from + at}\n`).join("");
  expect(live.stdout === count(1, 60_000)).toBe(true);
  expect(live.stderr).toHaveLength(count(60_001, 120_000).length + count(200_001, 260_000).length);
  const kept = await gathered(engine.logs(id, { follow: true, tail: undefined }, signal));
  expect(kept.stdout === live.stdout).toBe(true);
  await engine.removeContainer(id, { force: true }, signal);
});

/** Collects the output of a terminal. */
function shown(stream: Duplex): () => string {
  let text = "";
  stream.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  return () => text;
}

const SHELL = { command: ["sh"], user: undefined, columns: 91, rows: 33 };

test("a terminal has a size, a user and an exit code", async () => {
  const id = await started("terminal");
  const terminal = await engine.terminal(id, { ...SHELL, user: "nobody" }, signal);
  const text = shown(terminal.stream);
  terminal.stream.write("stty size; id -un\n");
  await waitFor("it answers", () => /33 91\r\nnobody\r\n/.test(text()));
  await terminal.resize(120, 50, signal);
  terminal.stream.write("stty size\n");
  await waitFor("the new size", () => text().includes("50 120\r\n"));
  terminal.stream.write("exit 43\n");
  expect(await terminal.exitCode(signal)).toBe(43);
  await waitFor("the stream ends", () => terminal.stream.readableEnded);
  await engine.removeContainer(id, { force: true }, signal);
});

test("killing a terminal leaves no process of it, and the container running", async () => {
  const id = await started("killed");
  const pid = (await engine.inspectContainer(id, signal))?.pid ?? 0;
  const terminal = await engine.terminal(id, SHELL, signal);
  terminal.stream.resume();
  terminal.stream.write("set -m; sleep 2001 & (sleep 2003 &) ; setsid sleep 2004 & sleep 2005\n");
  const sleeping = (): string[] => commandsLike(/^sleep 200\d $/, id);
  await waitFor("all of it runs", () => sleeping().length === 4);
  await terminal.kill();
  expect(sleeping()).toEqual([]);
  expect(commandsLike(/^sh $/, id)).toEqual([]);
  expect(await engine.inspectContainer(id, signal)).toMatchObject({ state: "running", pid });
  expect(await terminal.exitCode(signal)).toBe(137);
  await terminal.kill();
  await engine.removeContainer(id, { force: true }, signal);
});

function commandsLike(command: RegExp, containerId: string): string[] {
  return readdirSync("/proc").filter((name) => {
    try {
      const isOfIt = readFileSync(`/proc/${name}/cgroup`, "utf8").includes(containerId);
      return isOfIt && command.test(readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " "));
    } catch {
      return false;
    }
  });
}

test("a terminal ends with the signal, or if the command is missing", async () => {
  const id = await started("ends");
  const reader = new AbortController();
  const terminal = await engine.terminal(id, SHELL, reader.signal);
  reader.abort(new Error("gone"));
  await waitFor("the stream is closed", () => terminal.stream.destroyed);
  await terminal.kill();
  const absent = { ...SHELL, command: ["no-such-command"] };
  const outcome = await engine.terminal(id, absent, signal).then(
    (started) => {
      started.stream.resume();
      return started.exitCode(signal);
    },
    (error: unknown) => error,
  );
  expect(outcome === 126 || outcome === 127 || outcome instanceof Error).toBe(true);
  await engine.removeContainer(id, { force: true }, signal);
  await expect(engine.terminal(id, SHELL, signal)).rejects.toMatchObject({
    code: "engine-refused",
    details: { status: 404 },
  });
});

test("images are inspected, listed and removed", async () => {
  const id = await makeImage(real, { tag: "gone:1", layers: [[{ path: "mark", data: "x" }]] });
  expect(await engine.inspectImage("gone:1", signal)).toMatchObject({ id, tags: ["gone:1"] });
  const listed = await engine.listImages(signal);
  expect(listed.flatMap((image) => image.tags).sort()).toEqual(["busybox:1", "gone:1"]);
  expect(listed[0]?.sizeBytes).toBeGreaterThan(100_000);
  await engine.removeImage("gone:1", signal);
  await engine.removeImage("gone:1", signal);
  expect(await engine.inspectImage("gone:1", signal)).toBeUndefined();
});

test("volumes and networks are created, found by their label, and removed", async () => {
  const volume = { name: "v-one", driver: "local", driverOptions: {}, labels: LABELS } as const;
  await engine.createVolume(volume, signal);
  expect(await engine.listVolumes([OWNER], signal)).toEqual([
    { ...volume, mountpoint: join(real.dataRoot, "volumes/v-one/_data") },
  ]);
  expect(await engine.listVolumes(["io.holdfast.owner=two"], signal)).toEqual([]);
  await engine.removeVolume("v-one", signal);
  await engine.removeVolume("v-one", signal);

  const network = {
    name: "n-one",
    driver: "bridge",
    subnet: "172.29.0.0/24",
    gateway: "172.29.0.1",
    reserved: { resolver: "172.29.0.2" },
    options: { "com.docker.network.bridge.name": "hfbr0" },
    labels: LABELS,
  } as const;
  const { id } = await engine.createNetwork(network, signal);
  expect(await engine.listNetworks([OWNER], signal)).toEqual([
    { id, name: "n-one", subnets: ["172.29.0.0/24"], labels: LABELS },
  ]);
  await expect(engine.createNetwork(network, signal)).rejects.toMatchObject({ code: "engine-refused" });
  const member = await started("member", { HostConfig: { NetworkMode: "n-one" } });
  expect(await engine.inspectContainer(member, signal)).toMatchObject({ addresses: { "n-one": "172.29.0.3" } });
  await expect(engine.removeNetwork(id, signal)).rejects.toMatchObject({
    code: "engine-refused",
    details: { status: 403 },
  });
  await engine.removeContainer(member, { force: true }, signal);
  await engine.removeNetwork(id, signal);
  await engine.removeNetwork(id, signal);
});

test("events report only what has the label", async () => {
  const watching = new AbortController();
  const seen: string[] = [];
  const isOpen = new Promise<void>((resolve) => {
    void (async () => {
      try {
        for await (const { kind, action, attributes } of engine.events([OWNER], watching.signal, resolve)) {
          seen.push(`${kind} ${action} ${attributes["name"]}`);
        }
      } catch (error) {
        seen.push(String(error));
      }
    })();
  });
  await isOpen;
  const stranger = await started("stranger", { Labels: {} });
  const id = await started("watched", { Cmd: ["false"] });
  await waitFor("it dies", () => seen.includes("container die watched"));
  for (const one of [id, stranger]) await engine.removeContainer(one, { force: true }, signal);
  await waitFor("it is removed", () => seen.includes("container destroy watched"));
  expect(seen).toEqual(["create", "start", "die", "destroy"].map((action) => `container ${action} watched`));
  watching.abort(new Error("enough"));
  await waitFor("the stream ends", () => seen.includes("Error: enough"));
});
