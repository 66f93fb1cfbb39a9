import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { HostError } from "../../../src/errors.ts";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { hostVersions } from "../../../src/host/releases/versions.ts";
import type { UpgradeStanding } from "../../../src/protocol/documents/release.ts";
import type { AgentView } from "../../../src/upgrade/agent-view.ts";
import { requestBox } from "../../../src/upgrade/request-box.ts";
import { upgrade } from "../../../src/upgrade/upgrade.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { tempDir } from "../../support/temp-dir.ts";
import type { Services, UpgradeDeps } from "../../../src/upgrade/deps.ts";

const [OLD, NEW] = ["0.1.20260101-0000", "0.1.20260202-0000"] as const;
const DAY = 86_400;
const LIMITS = {
  windowMs: 1000,
  settleMs: 100,
  maxElapsedMs: 1000,
  againMs: 500,
  betterMs: 1000,
  everyMs: 100,
  askEveryMs: 30_000,
  pendingMs: 1000,
  backMs: 1000,
  probationSeconds: DAY,
};

interface Rig {
  readonly deps: UpgradeDeps;
  readonly path: string;
  readonly output: string[];
  /** The report of the answering agent; undefined without one. */
  view: Partial<AgentView> | undefined;
  isFull: boolean;
  isLeft: boolean;
  updates: Services["updateSystem"];
  readonly request: (more?: object) => void;
  readonly stand: (standing: Partial<UpgradeStanding>) => void;
}

/** Real files below a directory; the clock moves on each sleep. */
function rig(): Rig {
  const root = tempDir();
  const path = join(root, "versions");
  const lay = (at: string, version: string): void => {
    mkdirSync(at, { recursive: true });
    for (const [name, text] of [
      ["node", "n"],
      ["holdfast.mjs", "m"],
      ["version", `${version}\n`],
    ] as const) {
      writeFileSync(join(at, name), text);
    }
  };
  mkdirSync(path);
  lay(join(root, "lib/base"), OLD);
  const files = hostFiles();
  const signal = AbortSignal.timeout(120_000);
  const print = (line: string): void => void made.output.push(line);
  const packagePath = join(root, "lib");
  const full: typeof files = {
    ...files,
    async writeAtomic(...args) {
      if (made.isFull) throw new HostError("disk-full", "no space left");
      await files.writeAtomic(...args);
    },
  };
  const versions = hostVersions({ packagePath, path, files: full, directories: hostDirectories(), signal });
  const clock = new FakeClock();
  clock.sleep = (ms) => clock.advance(ms);
  const deps: UpgradeDeps = {
    versions,
    requests: requestBox(files, { asked: join(root, "asked.json"), kept: path, print }),
    async prepare(_request, onStep) {
      await onStep("fetching");
      lay(join(await versions.staging(), "new"), NEW);
      await versions.stage("new", NEW, "sha");
      return NEW;
    },
    services: {
      restartAgent: () => Promise.resolve(),
      startAgent: () => Promise.resolve(),
      updateSystem: (limit) => made.updates(limit),
      succeedOverlay: () => Promise.resolve(),
    },
    agent: {
      view: () => Promise.resolve(made.view === undefined ? undefined : { ...VIEW, ...made.view }),
      poke: () => Promise.resolve(),
    },
    isChangeLeft: () => Promise.resolve(made.isLeft),
    targets: () => Promise.resolve(undefined),
    probe: { controlPlane: () => Promise.resolve("unreached"), gateway: () => Promise.resolve(false) },
    clock,
    bootId: "boot",
    ownVersion: OLD,
    limits: LIMITS,
    print,
  };
  const made: Rig = {
    deps,
    path,
    output: [],
    view: {},
    isFull: false,
    isLeft: false,
    updates: () => Promise.resolve(true),
    request(more = {}) {
      const request = { from: "/m.jws", by: "operator", skipUnattended: false, ...more };
      writeFileSync(join(root, "asked.json"), JSON.stringify(request));
    },
    stand(standing) {
      lay(join(path, NEW), NEW);
      const whole = { state: "IN_PROGRESS", from: OLD, to: NEW, begunAt: 1, ...standing };
      writeFileSync(join(path, "upgrade.json"), JSON.stringify(whole));
    },
  };
  return made;
}

const VIEW: AgentView = {
  version: NEW,
  isRegistered: false,
  session: { state: "waiting", hasBeaten: false, reason: undefined },
  documents: {},
  sections: new Map(),
  hasPendingChange: false,
  connectors: new Map(),
  services: new Map(),
  containers: new Map(),
  gateways: new Map(),
  targets: undefined,
};

const run = ({ deps }: Rig): Promise<string> => upgrade(deps, new AbortController().signal);
const now = ({ deps }: Rig): number => Math.floor(deps.clock.now() / 1000);

test("reports when the operating system was updated, and only if it was", async () => {
  const done = rig();
  done.request();
  expect(await run(done)).toBe("completed");
  expect((await done.deps.versions.standing())?.osUpdatedAt).toBe(now(rig()));
  const passedOver = (): Promise<boolean> => Promise.resolve(false);
  const failing = (): Promise<boolean> => Promise.reject(new HostError("exec-failed", "no"));
  for (const updates of [passedOver, failing]) {
    const other = rig();
    other.updates = updates;
    other.request();
    expect(await run(other)).toBe("completed");
    const standing = await other.deps.versions.standing();
    expect(standing).not.toHaveProperty("osUpdatedAt");
    expect(standing?.osReason).toEqual(updates === failing ? { code: "exec-failed", message: "no" } : undefined);
  }
});

test("a release that is only staged waits for a later upgrade, without a change of the system", async () => {
  const rigged = rig();
  rigged.updates = () => Promise.reject(new Error("it must not be updated"));
  rigged.request({ stageOnly: true });
  expect(await run(rigged)).toBe("completed");
  expect(await rigged.deps.versions.standing()).toEqual({ state: "STAGED", from: OLD, to: NEW, begunAt: now(rigged) });
  expect(await rigged.deps.versions.staged(NEW, "sha")).toBe(join(rigged.path, "part", `${NEW}.ready`));
  expect(existsSync(join(rigged.path, NEW))).toBe(false);
  expect(existsSync(join(rigged.path, "request.json"))).toBe(false);
  // Restarted, it has nothing to do.
  expect(await run(rigged)).toBe("idle");
  rigged.request({ skipUnattended: true });
  expect(await run(rigged)).toBe("completed");
  expect(await rigged.deps.versions.standing()).toMatchObject({ state: "COMPLETED", to: NEW });
  expect(existsSync(join(rigged.path, NEW))).toBe(true);
});

test("a staging interrupted before its request was deleted ends staged again", async () => {
  const rigged = rig();
  rigged.request({ stageOnly: true });
  const cut = { ...rigged.deps.requests, done: () => Promise.reject(new Error("the power is gone")) };
  await expect(upgrade({ ...rigged.deps, requests: cut }, new AbortController().signal)).rejects.toThrow("power");
  expect(await rigged.deps.versions.standing()).toMatchObject({ state: "STAGED" });
  expect(await run(rigged)).toBe("completed");
  expect(await rigged.deps.versions.standing()).toMatchObject({ state: "STAGED", to: NEW });
  expect(existsSync(join(rigged.path, NEW))).toBe(false);
});

test("waits for a pending network change on disk if the agent does not answer", async () => {
  const rigged = rig();
  rigged.request({ skipUnattended: true });
  rigged.view = undefined;
  rigged.isLeft = true;
  expect(await run(rigged)).toBe("failed");
  expect(await rigged.deps.versions.standing()).toMatchObject({ state: "FAILED", reason: { code: "busy" } });
  expect(existsSync(join(rigged.path, NEW))).toBe(false);
});

test("a probation from a clock that was ahead lasts no longer than any", async () => {
  const rigged = rig();
  rigged.stand({ state: "COMPLETED" });
  writeFileSync(join(rigged.path, `${NEW}.probation`), `until=${now(rigged) + 3650 * DAY}\n`);
  expect(await run(rigged)).toBe("idle");
  expect(readFileSync(join(rigged.path, `${NEW}.probation`), "utf8")).toBe(`until=${now(rigged) + DAY}\n`);
});

test("an upgrade interrupted after the verification has ended, also once the probation has", async () => {
  const rigged = rig();
  rigged.stand({ step: "judging" });
  writeFileSync(join(rigged.path, `${NEW}.probation`), "until=1\n");
  expect(await run(rigged)).toBe("completed");
  expect(existsSync(join(rigged.path, `${NEW}.failed`))).toBe(false);
  expect(existsSync(join(rigged.path, `${NEW}.probation`))).toBe(false);
});

test("abandons a version on a full disk, too", async () => {
  const rigged = rig();
  rigged.stand({ step: "judging" });
  const trial = { from: OLD, since: 1, bootId: "boot", before: {} };
  writeFileSync(join(rigged.path, `${NEW}.trial`), JSON.stringify(trial));
  rigged.view = undefined;
  rigged.isFull = true;
  // The result cannot be reported yet.
  await expect(run(rigged)).rejects.toThrow("no space left");
  const found = (await rigged.deps.versions.list()).find(({ version }) => version === NEW);
  expect(found).toMatchObject({ trial: undefined, failed: { code: "given-up" } });
  rigged.isFull = false;
  rigged.view = { version: OLD };
  expect(await run(rigged)).toBe("failed");
  expect(await rigged.deps.versions.standing()).toMatchObject({ state: "FAILED", reason: { code: "given-up" } });
});
