import { rmSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, test } from "vitest";
import { openExposure } from "../../../../../src/agent/wiring/containers/exposure.ts";
import type { ExecActual, ExecDesired } from "../../../../../src/agent/sections/exec/actual.ts";
import { planExec, waitingExec } from "../../../../../src/agent/sections/exec/plan.ts";
import { beginning } from "../../../../../src/agent/containers/model/standing.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { machineRoot } from "../../../../support/machine/machine-root.ts";
import { ModelEngine } from "../../../../support/containers/model-engine.ts";

const signal = new AbortController().signal;
const wish = { subnet: "172.30.0.0/16", vrfs: ["blue"] };

function rig(links: readonly string[]) {
  const { root, reader } = machineRoot(
    Object.fromEntries(links.map((link) => [`/sys/class/net/${link}/mtu`, "1500\n"])),
  );
  const exposure = openExposure({
    log: pino({ level: "silent" }),
    exec: fakeTools({}).exec,
    files: hostFiles(),
    reader,
    stateDir: root,
    network: {
      name: () => "holdfast-1",
      ensure: () => Promise.resolve(),
      stands: () => Promise.resolve(true),
      restore: () => Promise.resolve(false),
      remove: () => Promise.resolve(),
    },
    engine: () => new ModelEngine().engine,
    record: { load: () => Promise.resolve({ vrfs: { red: 1000, blue: 1001 } } as never) },
  });
  return { root, exposure };
}

function around(exposure: ExecActual["exposure"], isRunning: boolean): readonly [ExecDesired, ExecActual] {
  const standing = beginning(isRunning ? { id: "1", hash: "a", is: "running" } : undefined, undefined);
  const work = {
    id: "w",
    row: undefined,
    wanted: undefined,
    standing,
    since: 0,
    limits: undefined,
    container: undefined,
    oomKills: 0,
  };
  const info = {
    cpus: 1,
    memoryBytes: 1,
    architecture: "x86_64",
    cgroupDriver: "cgroupfs",
    cgroupVersion: 2,
    rootDirectory: "/",
    storageDriver: "overlay2",
    product: "docker",
  } as const;
  const seen = {
    engine: { state: "well", since: 0 },
    info,
    now: 0,
    works: new Map([["w", work]]),
    foreign: [],
  } as const;
  const actual: ExecActual = {
    seen,
    isActive: true,
    version: "1",
    placement: undefined,
    addresses: { subnet: wish.subnet, reserved: new Set() },
    volumes: { kept: new Set(), isSettled: true, troubles: [] },
    check: () => Promise.resolve(undefined),
    ...(exposure === undefined ? {} : { exposure }),
  };
  const desired = {
    config: { containers: [], volumes: [], limits: {} },
    unreadable: new Set<string>(),
    disabled: new Set<string>(),
  };
  return [desired, actual];
}

const codes = (...of: Parameters<typeof around>): readonly string[] =>
  waitingExec(...around(...of)).map(({ code }) => code);

/** Steps on the link. */
const steps = (...of: Parameters<typeof around>): readonly string[] =>
  planExec(...around(...of)).flatMap((step) =>
    step.kind === "restore link" ? [`${step.kind} ${step.subject}: ${step.detail}`] : [],
  );

test("reports a link of the containers that existed and does not any more", async () => {
  const { root, exposure } = rig(["holdfast0"]);
  await exposure.ensureNetwork(new ModelEngine().engine, signal);
  const before = await exposure.observe(undefined, wish, signal);
  expect([before.isBridgeGone, codes(before, true)]).toEqual([false, []]);
  rmSync(join(root, "/sys/class/net/holdfast0"), { recursive: true });
  const after = await exposure.observe(undefined, wish, signal);
  expect(codes(after, true)).toEqual(["link-gone"]);
  expect(steps(after, true)).toEqual([
    "restore link holdfast0: recreates the container bridge holdfast0; containers on it: 1",
  ]);
  expect([steps(after, false), steps(before, true)]).toEqual([[], []]);
  expect(codes(after, false)).toEqual([]);
});

test("reports an address of a link in the range of running containers", async () => {
  const { exposure } = rig(["holdfast0"]);
  const found = await exposure.observe(undefined, wish, signal);
  const addresses = new Map([["holdfast0", ["172.30.0.1"]]]);
  expect(codes({ ...found, addresses }, true)).toEqual([]);
  addresses.set("eth9", ["172.30.7.9"]);
  expect(codes({ ...found, addresses }, true)).toEqual(["address-conflict"]);
});

test("reports nothing for an engine with another name of the link", async () => {
  const { exposure } = rig(["podman1"]);
  await exposure.ensureNetwork(new ModelEngine().engine, signal);
  expect((await exposure.observe(undefined, wish, signal)).isBridgeGone).toBe(false);
});

test("the range is that of the requested documents, applied or not", async () => {
  const { exposure } = rig([]);
  expect((await exposure.observe(undefined, wish, signal)).subnet).toBe("172.30.0.0/16");
  expect((await exposure.observe(undefined, { ...wish, subnet: "172.18.0.0/16" }, signal)).subnet).toBe(
    "172.18.0.0/16",
  );
});
