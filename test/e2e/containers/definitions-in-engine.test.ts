import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { VolumeManager } from "../../../src/agent/containers/volumes/volumes.ts";
import { engineNameOf } from "../../../src/agent/containers/model/own-containers.ts";
import { compileContainer, type Compiled } from "../../../src/agent/sections/exec/compile.ts";
import { wholeDiskOf } from "../../../src/host/process/block-device.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { encryptedVolumes } from "../../../src/host/machine/encrypted-volume.ts";
import type { Engine } from "../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { hostExec } from "../../../src/host/process/exec.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { hostReader } from "../../../src/host/reader.ts";
import type { ContainerSpec, VolumeSpec } from "../../../src/protocol/sections/exec/config.ts";
import { containerSpec, placement } from "../../support/containers/container-spec.ts";
import { startEngine, type TestEngine } from "../../support/containers/docker-engine.ts";
import { FakeRecords } from "../../support/containers/fake-volumes.ts";
import { makeImage } from "../../support/containers/images.ts";

const { signal } = new AbortController();
const OWNER = placement().owner;
const NETWORK = "holdfast-0f0e0d0c";

let dir: string;
let real: TestEngine;
let engine: Engine;
let manager: VolumeManager;

beforeAll(async () => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), "hf-")));
  real = await startEngine();
  const clock = systemClock();
  const exec = hostExec(clock);
  const directories = hostDirectories();
  engine = hostEngine({ socketPath: real.socketPath, clock });
  manager = new VolumeManager({
    owner: OWNER,
    dataStore: join(dir, "data-store"),
    engine,
    records: new FakeRecords(),
    encrypted: encryptedVolumes({ exec, reader: hostReader(), directories }),
    files: hostFiles(),
    directories,
    clock,
    askKey: () => Promise.resolve(undefined),
  });
  await makeImage(real, {
    tag: "busybox:1",
    layers: [[{ path: "seeded/" }, { path: "seeded/first", data: "from the image" }]],
    command: ["sleep", "1000"],
  });
  await engine.createNetwork(
    {
      name: NETWORK,
      driver: "bridge",
      subnet: "172.18.0.0/16",
      gateway: "172.18.0.1",
      reserved: {},
      options: { "com.docker.network.bridge.name": "holdfast0" },
      labels: { "io.holdfast.owner": OWNER },
    },
    signal,
  );
});

afterAll(async () => {
  await real.stop();
  rmSync(dir, { recursive: true, force: true });
});

const volume = (name: string): VolumeSpec => ({ path: "", name, encrypted: false, location: undefined });

async function compiled(spec: Partial<ContainerSpec>): Promise<Compiled> {
  const { cpus, memoryBytes } = await engine.info(signal);
  const disk = wholeDiskOf(hostReader(), real.dataRoot);
  const result = compileContainer(
    containerSpec({ image: { repository: "docker.io/library/busybox", tag: "1" }, ...spec }),
    placement({
      host: { cpus, memoryBytes, ...(disk === undefined ? {} : { diskDevice: disk.path }) },
      network: { name: NETWORK },
      volumes: (name) => manager.lookup(name),
    }),
  );
  if ("refused" in result) throw new Error(result.refused);
  return result;
}

async function started(id: string, spec: Partial<ContainerSpec>): Promise<{ id: string; request: Compiled }> {
  const request = await compiled({ id, name: id, ...spec });
  expect(await engine.inspectImage(request.image.reference, signal)).toBeDefined();
  const created = await engine.createContainer(engineNameOf(id), request.body, signal);
  await engine.startContainer(created.id, signal);
  return { id: created.id, request };
}

const Names = z.object({ Aliases: z.array(z.string()) });
const inspected = async (id: string): Promise<unknown> => (await real.call("GET", `/containers/${id}/json`)).body;

test("the engine accepts a definition with all fields", async () => {
  await manager.settle([volume("all")], new Set(), signal);
  const { id, request } = await started("all", {
    command: ["sleep", "1000"],
    hostname: "inside",
    user: "0:0",
    useInit: true,
    ip: "172.18.0.77",
    dns: "9.9.9.9",
    capabilities: { add: ["NET_ADMIN"], drop: ["NET_RAW"] },
    healthCheck: { test: ["CMD", "true"], intervalSeconds: 1, timeoutSeconds: 1, startPeriodSeconds: 0, retries: 1 },
    limits: { cpuMax: 10, memMaxBytes: 1, ioRbps: 15, ioWbps: 1e9, ioRiops: 5, ioWiops: 1e6 },
    ulimits: [{ type: "nofile", soft: 100, hard: 200 }],
    logging: { maxFileSizeMb: 1, numFiles: 1 },
    mounts: [
      { kind: "volume", source: "all", dest: "/data" },
      { kind: "bind", source: dir, dest: "/bound" },
    ],
    variables: [{ name: "A", value: "b=c" }],
  });
  expect(await inspected(id)).toMatchObject({
    Name: "/holdfast-all",
    State: { Running: true },
    Config: { Hostname: "inside", Labels: { "io.holdfast.hash": request.hash } },
    HostConfig: {
      NanoCpus: request.update["NanoCpus"],
      Memory: 6 * 1024 * 1024,
      PidsLimit: 4096,
      OomScoreAdj: 500,
      LogConfig: { Type: "local" },
    },
    NetworkSettings: { Networks: { [NETWORK]: { IPAddress: "172.18.0.77" } } },
  });
  const more = await compiled({ id: "all", name: "all", limits: { cpuMax: 20, memMaxBytes: 64 * 1024 * 1024 } });
  await engine.updateContainer(id, more.update, signal);
  expect(await inspected(id)).toMatchObject({ State: { Running: true }, HostConfig: { Memory: 64 * 1024 * 1024 } });
  await engine.removeContainer(id, { force: true }, signal);
});

test("a plain service runs with the defaults, and its output is stored in files on request", async () => {
  const { id } = await started("plain", { saveOutput: true, logging: { maxFileSizeMb: 2, numFiles: 1 } });
  const found = await inspected(id);
  expect(found).toMatchObject({
    State: { Running: true },
    HostConfig: { RestartPolicy: { Name: "unless-stopped" }, LogConfig: { Type: "json-file" } },
  });
  // Siblings resolve its own name only.
  const names = z.object({ NetworkSettings: z.object({ Networks: z.record(z.string(), Names) }) }).parse(found);
  expect(new Set(names.NetworkSettings.Networks[NETWORK]?.Aliases)).toEqual(new Set(["plain", id.slice(0, 12)]));
  await engine.removeContainer(id, { force: true }, signal);
});

test("a bind of a missing path fails and creates nothing", async () => {
  const { body } = await compiled({ mounts: [{ kind: "bind", source: join(dir, "nope"), dest: "/x" }] });
  await expect(engine.createContainer("holdfast-nope", body, signal)).rejects.toMatchObject({ code: "engine-refused" });
  expect(existsSync(join(dir, "nope"))).toBe(false);
});

test("a volume gets the image's files, keeps them over containers, and is the same when the engine has lost it", async () => {
  const [status] = await manager.settle([volume("data")], new Set(), signal);
  const path = join(dir, "data-store/volumes/data");
  expect(status).toMatchObject({ state: "ready", path });
  const mounts = [{ kind: "volume", source: "data", dest: "/seeded" }] as const;
  const first = await started("first", { mounts });
  expect(readFileSync(join(path, "first"), "utf8")).toBe("from the image");
  writeFileSync(join(path, "first"), "changed");
  await engine.removeContainer(first.id, { force: true }, signal);
  await engine.removeVolume(manager.engineName("data"), signal);
  expect(readFileSync(join(path, "first"), "utf8")).toBe("changed");
  const second = await started("second", { mounts });
  expect(readFileSync(join(path, "first"), "utf8")).toBe("changed");
  manager.forget();
  const refused = await manager.settle([], new Set(), signal);
  expect(refused.find(({ name }) => name === "data")).toMatchObject({ state: "failed" });
  expect(existsSync(path)).toBe(true);
  await engine.removeContainer(second.id, { force: true }, signal);
  const gone = await manager.settle([], new Set(), signal);
  expect(gone.find(({ name }) => name === "data")).toMatchObject({ state: "quarantined" });
  expect(existsSync(path)).toBe(false);
  expect(await engine.listVolumes([`io.holdfast.owner=${OWNER}`], signal)).toEqual([]);
  await manager.settle([volume("data")], new Set(), signal);
  expect(readFileSync(join(path, "first"), "utf8")).toBe("changed");
});

test("an encrypted volume reports why this machine does not support it", async () => {
  const support = await encryptedVolumes({
    exec: hostExec(systemClock()),
    reader: hostReader(),
    directories: hostDirectories(),
  }).support(signal);
  const statuses = await manager.settle([{ ...volume("secret"), encrypted: true }], new Set(), signal);
  const secret = statuses.find(({ name }) => name === "secret");
  if (support.isSupported) expect(secret).toMatchObject({ state: "ready" });
  else expect(secret).toMatchObject({ state: "unsupported", reason: support.reason });
});
