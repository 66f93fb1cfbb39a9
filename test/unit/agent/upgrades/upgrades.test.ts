import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { Upgrades, type UpgradesOptions } from "../../../../src/agent/upgrades/upgrades.ts";
import { HostError } from "../../../../src/errors.ts";
import type { InstalledVersion } from "../../../../src/host/releases/versions.ts";
import type { UpgradeRequest, UpgradeStanding } from "../../../../src/protocol/documents/release.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const OLD = "0.1.20261101-1000";
const NEW = "0.1.20261121-1830";
const begun: UpgradeStanding = { state: "IN_PROGRESS", from: OLD, begunAt: 1000, step: "fetching" };
const failed: UpgradeStanding = {
  state: "FAILED",
  from: OLD,
  to: NEW,
  begunAt: 1000,
  completedAt: 2000,
  starts: 3,
  reason: { code: "crashed", message: "it ended three times" },
};
const completed: UpgradeStanding = { state: "COMPLETED", from: OLD, to: NEW, begunAt: 3000, completedAt: 4000 };
const order = { skipUnattended: false, isForced: false, by: "control-plane" } as const;

function rig(changes: Partial<UpgradesOptions> & { isManaged?: boolean } = {}) {
  const clock = new FakeClock();
  const started: UpgradeRequest[] = [];
  const reported: unknown[] = [];
  const state = {
    standing: undefined as UpgradeStanding | undefined,
    list: [] as InstalledVersion[],
    isAtWork: false,
    refusal: undefined as Error | undefined,
    osReported: undefined as number | undefined,
    changes: 0,
  };
  const events = createEventLog({
    clock,
    sink: ({ eventType, state: at, level, message }) => reported.push([eventType, at, level, message]),
  });
  const upgrades = new Upgrades({
    clock,
    log: pino({ level: "silent" }),
    versions: { list: () => Promise.resolve(state.list), standing: () => Promise.resolve(state.standing) },
    unit: {
      isManaged: changes.isManaged ?? true,
      isAtWork: () => Promise.resolve(state.isAtWork),
      start(request) {
        if (state.refusal !== undefined) return Promise.reject(state.refusal);
        started.push(request);
        state.isAtWork = true;
        return Promise.resolve();
      },
    },
    version: NEW,
    manifest: undefined,
    controlPlane: () => "https://cp.example",
    node: () => ({ type: "Node", state: "ACTIVE" }),
    isNetworkPending: () => false,
    ending: () => undefined,
    events,
    audit: ({ category, value }) => reported.push([category, value]),
    lastReported: {
      load: () => Promise.resolve(state.osReported),
      save(at) {
        state.osReported = at;
        return Promise.resolve();
      },
    },
    onChanged: () => {
      state.changes += 1;
    },
    ...changes,
  });
  return { upgrades, state, started, reported, clock };
}

describe("an upgrade", () => {
  test("is requested from the control plane's releases, once", async () => {
    const { upgrades, started } = rig();
    const answers = await Promise.all([upgrades.ask(order), upgrades.ask(order)]);
    expect(answers.map(({ output }) => output.status)).toEqual([
      "Upgrade in progress",
      "Existing upgrade is already in progress",
    ]);
    expect(started).toEqual([{ ...order, from: "https://cp.example/releases/manifest.jws" }]);
  });

  test("is requested from the URL of the settings, or rather from that of the caller", async () => {
    const { upgrades, started, state } = rig({ manifest: "/srv/manifest.jws" });
    await upgrades.ask(order);
    state.isAtWork = false;
    await upgrades.ask({ ...order, from: "http://other.example/m.jws", isForced: true, by: "operator" });
    expect(started.map(({ from }) => from)).toEqual(["/srv/manifest.jws", "http://other.example/m.jws"]);
  });

  test.each<[string, Parameters<typeof rig>[0], string]>([
    ["on an agent", { node: () => ({ type: "Agent", state: "ACTIVE" }) }, "not-supported"],
    ["where nobody manages it", { isManaged: false }, "not-supported"],
    ["while the network is being proven", { isNetworkPending: () => true }, "busy"],
    ["while the machine restarts", { ending: () => "node-reboot" }, "busy"],
    ["without anybody who has releases", { controlPlane: () => undefined }, "not-configured"],
  ])("is refused %s", async (_when, changes, code) => {
    const { upgrades, started } = rig(changes);
    await expect(upgrades.ask(order)).rejects.toMatchObject({ code });
    expect(started).toEqual([]);
  });

  test("may be requested by the trigger, which runs exclusively", async () => {
    const { upgrades } = rig({ ending: () => "node-upgrade" });
    expect((await upgrades.ask(order)).output.status).toBe("Upgrade in progress");
  });

  test("that cannot start is answered so, and can be requested again", async () => {
    const { upgrades, state, started } = rig();
    state.refusal = new HostError("exec-failed", "not found");
    const both = await Promise.allSettled([upgrades.ask(order), upgrades.ask(order)]);
    expect(both.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    state.refusal = undefined;
    expect((await upgrades.ask(order)).output.status).toBe("Upgrade in progress");
    expect(started).toHaveLength(1);
  });
});

describe("the state of an upgrade", () => {
  test("is in the shadow step by step, and polled", async () => {
    const { upgrades, state, clock } = rig();
    await upgrades.refresh();
    expect(upgrades.facts()).toEqual({});
    state.standing = { ...begun, completedAt: 500 };
    await upgrades.refresh();
    expect(upgrades.facts()).toEqual({
      "node.upgrade.state": "IN_PROGRESS",
      "node.upgrade.completed.tstamp": 500,
      "node.upgrade.from": OLD,
      "node.upgrade.step": "fetching",
    });
    state.standing = failed;
    const before = state.changes;
    await clock.advance(10_000);
    await expect.poll(() => state.changes).toBe(before + 1);
    expect(upgrades.facts()).toEqual({
      "node.upgrade.state": "FAILED",
      "node.upgrade.completed.tstamp": 2000,
      "node.upgrade.from": OLD,
      "node.upgrade.version": NEW,
      "node.upgrade.reason": "crashed: it ended three times",
    });
    expect(upgrades.why({ schema: 1, reasons: [] }).reasons).toMatchObject([
      { section: "upgrade", code: "upgrade-failed", since: 2_000_000 },
    ]);
    await clock.advance(60_000);
    await upgrades.refresh();
    expect(state.changes).toBe(before + 2);
  });

  test("is an event when it failed, once for each time, until one succeeds", async () => {
    const { upgrades, state, reported } = rig();
    state.standing = failed;
    await upgrades.refresh();
    await upgrades.refresh();
    state.standing = { ...begun, begunAt: 2500, completedAt: 2000 };
    await upgrades.refresh();
    state.standing = { ...failed, completedAt: 2600 };
    await upgrades.refresh();
    state.standing = completed;
    await upgrades.refresh();
    await upgrades.refresh();
    const message = `The upgrade from ${OLD} to ${NEW} failed: crashed: it ended three times`;
    expect(reported).toEqual([
      ["Upgrade Failed", "EXCEEDED", "ERROR", message],
      ["Upgrade Failed", "CLEARED", "INFO", "Another upgrade has been tried since"],
      ["Upgrade Failed", "EXCEEDED", "ERROR", message],
      ["Upgrade Failed", "CLEARED", "INFO", `Upgraded from ${OLD} to ${NEW}`],
    ]);
  });

  test("is failed when the version was abandoned after it had passed its verification", async () => {
    const { upgrades, state, reported } = rig({ version: OLD });
    state.standing = completed;
    const given = { code: "given-up", message: "it was started 3 times and never ended well" };
    state.list = [
      {
        version: NEW,
        path: "/v",
        isBase: false,
        isWhole: true,
        trial: undefined,
        probationUntil: 9,
        isAside: false,
        starts: 3,
        failed: given,
      },
    ];
    await upgrades.refresh();
    await upgrades.refresh();
    expect(upgrades.facts()).toMatchObject({
      "node.upgrade.state": "FAILED",
      "node.upgrade.reason": `given-up: ${given.message}`,
    });
    expect(reported).toEqual([
      ["Upgrade Failed", "EXCEEDED", "ERROR", `The upgrade from ${OLD} to ${NEW} failed: given-up: ${given.message}`],
    ]);
    // A version reverted by an operator is another than the upgraded one.
    state.standing = { ...completed, from: NEW, to: OLD };
    await upgrades.refresh();
    expect(upgrades.facts()).toMatchObject({ "node.upgrade.state": "COMPLETED" });
  });

  test("reports an update of the operating system once", async () => {
    const { upgrades, state, reported } = rig();
    state.standing = { ...completed, osUpdatedAt: 3500 };
    await upgrades.refresh();
    await upgrades.refresh();
    expect(reported).toEqual([["OS Update", "OS Security Update applied on Thu, 01 Jan 1970 00:58:20 GMT"]]);
  });

  test("reports that the operating system was not updated until it is", async () => {
    const { upgrades, state, reported } = rig();
    const osReason = { code: "package-database", message: "packages are not completely installed: half" };
    state.standing = { ...completed, osReason };
    await upgrades.refresh();
    await upgrades.refresh();
    expect(upgrades.facts()).toMatchObject({ "node.upgrade.os.reason": `package-database: ${osReason.message}` });
    expect(upgrades.why({ schema: 1, reasons: [] }).reasons).toMatchObject([{ code: "os-update-failed" }]);
    const text = `The operating system was not updated: package-database: ${osReason.message}`;
    expect(reported).toEqual([["Upgrade Failed", "EXCEEDED", "WARNING", text]]);
    // An upgrade without packages reports none.
    state.standing = { ...completed, begunAt: 5000 };
    await upgrades.refresh();
    expect(reported).toHaveLength(1);
    state.standing = { ...completed, begunAt: 6000, osUpdatedAt: 6001 };
    await upgrades.refresh();
    expect(reported.slice(1, 2)).toEqual([["Upgrade Failed", "CLEARED", "INFO", "The operating system was updated"]]);
  });

  test("reports that the running version is on trial", async () => {
    const { upgrades, state } = rig();
    const trial = { from: OLD, since: 1500, bootId: "b", before: {} };
    const version = {
      version: NEW,
      path: "/",
      isBase: false,
      isWhole: true,
      trial,
      probationUntil: undefined,
      isAside: false,
      starts: 1,
      failed: undefined,
    };
    state.list = [version];
    state.standing = { ...begun, to: NEW, step: "judging" };
    await upgrades.refresh();
    expect(upgrades.status.trial).toEqual({ from: OLD, since: 1500 });
    expect(upgrades.facts()).toMatchObject({ "node.upgrade.trial": "true" });
    expect(upgrades.why({ schema: 1, reasons: [] }).reasons).toMatchObject([
      { code: "upgrading", notice: true },
      { code: "on-trial", notice: true, message: `this version is not confirmed yet; otherwise ${OLD} is restored` },
    ]);
    state.list = [{ ...version, trial: "damaged" }];
    await upgrades.refresh();
    expect(upgrades.status.trial).toEqual({});
    state.list = [{ ...version, version: OLD }];
    await upgrades.refresh();
    expect(upgrades.status.trial).toBeUndefined();
  });

  test("is not reported if this program is not managed", async () => {
    const { upgrades, state } = rig({ isManaged: false });
    state.standing = failed;
    await upgrades.refresh();
    expect(upgrades.status).toEqual({});
  });
});
