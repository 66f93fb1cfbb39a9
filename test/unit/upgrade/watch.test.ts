import { expect, test } from "vitest";
import { standingAsker } from "../../../src/agent/offline/offline.ts";
import { hostDialler } from "../../../src/host/net/dial.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { systemResolve } from "../../../src/host/net/system-resolve.ts";
import { viewOf, type AgentView, type Answers } from "../../../src/upgrade/agent-view.ts";
import { baselineOf } from "../../../src/upgrade/baseline.ts";
import type { Failing } from "../../../src/upgrade/judge.ts";
import { LIMITS } from "../../../src/upgrade/main.ts";
import type { Standing } from "../../../src/protocol/channel/standing.ts";
import { hostProbe, type Probe } from "../../../src/upgrade/probe.ts";
import { watch, type Trial } from "../../../src/upgrade/watch.ts";
import { atOnce } from "../../support/at-once.ts";
import { aControlPlane } from "../../support/control-plane/answering-control-plane.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const UID = "7d4f0c1e-3b5a-4a52-9d0a-0f3c5d6e7f80";
const VERSION = "0.1.20261121-1830";
const path = { gateway: UID, id: "", host: "192.0.2.1", port: 443, isDefault: true, name: "g", key: "k" };
const answers: Answers = {
  status: {
    version: "0.1.0",
    build: "20261121-183000.abc",
    node: {},
    session: { state: "online", heartbeatAt: 5 },
    documents: {},
    sections: {},
  },
  connectors: undefined,
  services: undefined,
  gateways: { gateways: [{ uid: UID, name: "g", paths: [{ id: "", state: "up" }] }] },
  containers: undefined,
  targets: { schema: 1, controlPlane: { url: "", session: "wss://cp", pins: [] }, paths: [path] },
};
const withSession = (session: Answers["status"]["session"]): Answers => ({
  ...answers,
  status: { ...answers.status, session },
});
const baseline = baselineOf(viewOf(answers), { session: "wss://cp", pins: [] });

/** Returns the result for a version with constant answers, within a day; undefined if there is none. */
async function resultOf(
  view: AgentView | undefined,
  reached: {
    readonly controlPlane?: Standing;
    readonly gateway?: boolean;
    readonly old?: boolean | undefined;
    readonly from?: Partial<Trial>;
  } = {},
): Promise<{
  readonly end: Failing | "healthy" | undefined;
  readonly requested: readonly string[];
  readonly times: number;
  readonly minutes: number;
  /** The minutes at which the old version was compared. */
  readonly turns: readonly number[];
}> {
  const clock = new FakeClock();
  const requested: string[] = [];
  const probe: Probe = {
    controlPlane({ session }) {
      requested.push(session);
      return Promise.resolve(reached.controlPlane ?? "unreached");
    },
    gateway(paths) {
      requested.push(...paths.map(({ host }) => host));
      return Promise.resolve(reached.gateway ?? false);
    },
  };
  const ending = new AbortController();
  const agent = { view: () => Promise.resolve(view), poke: () => Promise.resolve() };
  const targets = { targets: () => Promise.resolve(undefined), isGivenUp: () => Promise.resolve(false) };
  let minutes = 0;
  const turns: number[] = [];
  const tryOld = (): Promise<boolean | undefined> => {
    turns.push(minutes);
    return Promise.resolve("old" in reached ? reached.old : true);
  };
  const options = { agent, probe, clock, limits: LIMITS, ...targets, tryOld, print: () => undefined };
  const ends: (Failing | "healthy")[] = [];
  const watching = watch(
    options,
    { version: VERSION, baseline, isAside: false, wasBetter: false, ...reached.from },
    ending.signal,
  ).then(
    (failing) => void ends.push(failing ?? "healthy"),
    () => undefined,
  );
  for (; minutes < 60 && ends.length === 0; minutes += 1) await clock.advance(60_000);
  ending.abort(new Error("over"));
  await clock.advance(3000);
  await watching;
  return { end: ends[0], requested: [...new Set(requested)], times: requested.length, minutes, turns };
}

test("what works as before is healthy, without further requests", async () => {
  expect(await resultOf(viewOf(answers))).toMatchObject({ end: "healthy", requested: [] });
});

test("a session without an accepted heartbeat does not count", async () => {
  const silent = viewOf(withSession({ state: "online" }));
  expect(await resultOf(silent, { controlPlane: "admitting" })).toMatchObject({
    end: { code: "no-session" },
    requested: ["wss://cp"],
  });
  expect(await resultOf(silent, { controlPlane: "unreached" })).toMatchObject({ end: undefined });
});

test("a version reported as another node is to blame only if the same identity would be accepted", async () => {
  const refused = viewOf(withSession({ state: "waiting", reason: { code: "not-authentic" } }));
  expect(await resultOf(refused, { controlPlane: "admitting" })).toMatchObject({ end: { code: "no-session" } });
  expect(await resultOf(refused, { controlPlane: "refusing" })).toMatchObject({ end: undefined });
});

test("a version without a session fails if the old version has one, and not if it has none", async () => {
  const dropped = viewOf(withSession({ state: "waiting", reason: { code: "connection-lost" } }));
  const of = (old: boolean | undefined) => resultOf(dropped, { controlPlane: "admitting", old });
  const [better, none, untried] = [await of(true), await of(false), await of(undefined)];
  const failed = { code: "no-session" };
  expect(better).toMatchObject({ end: failed, turns: [10], minutes: 13 });
  expect(none).toMatchObject({ end: undefined, turns: [10, 30] });
  expect(untried).toMatchObject({ end: failed, turns: [10], minutes: 11 });
});

test("a verifier continues an interrupted comparison", async () => {
  const dropped = viewOf(withSession({ state: "waiting", reason: { code: "connection-lost" } }));
  const of = (from: Partial<Trial>, old: boolean | undefined) =>
    resultOf(dropped, { controlPlane: "admitting", old, from });
  const end = { code: "no-session" };
  expect(await of({ isAside: true }, true)).toMatchObject({ end, turns: [0], minutes: 3 });
  expect(await of({ isAside: true }, false)).toMatchObject({ end: undefined, turns: [0, 20] });
  expect(await of({ isAside: true }, undefined)).toMatchObject({ end, turns: [0, 10], minutes: 11 });
  expect(await of({ wasBetter: true }, false)).toMatchObject({ end, turns: [], minutes: 3 });
});

test("requests at most twice a minute from a control plane, by each node of a fleet", async () => {
  const { times, minutes } = await resultOf(viewOf(withSession({ state: "connecting" })), {
    controlPlane: "unreached",
  });
  expect(times).toBeGreaterThan(minutes);
  expect(times).toBeLessThanOrEqual(2 * minutes);
});

test.each([
  ["connect-failed", "no-session"],
  ["protocol-version", "no-session"],
  ["too-many", undefined],
  ["superseded", undefined],
  ["deleted", undefined],
  ["server-error", undefined],
  ["connection-closed", "no-session"],
])("a session that ended with %s, while the control plane is reachable: %s", async (code, comes) => {
  const { end } = await resultOf(viewOf(withSession({ state: "waiting", reason: { code } })), {
    controlPlane: "admitting",
  });
  expect(typeof end === "object" ? end.code : end).toBe(comes);
});

test("does not miss a gateway unreachable for all, and misses one reachable for others", async () => {
  const gateways = { gateways: [{ uid: UID, name: "g", paths: [{ id: "", state: "down" }] }] };
  const down = viewOf({ ...answers, gateways });
  expect(await resultOf(down, { gateway: false })).toMatchObject({ end: "healthy", requested: ["192.0.2.1"] });
  expect(await resultOf(down, { gateway: true })).toMatchObject({ end: { code: "function-lost" } });
});

test("no agent, or another version, is not the expected one", async () => {
  expect(await resultOf(undefined)).toMatchObject({ end: { code: "not-answering" } });
  const other = viewOf({ ...answers, status: { ...answers.status, build: "20260101-000000.abc" } });
  expect(await resultOf(other)).toMatchObject({ end: { message: "the agent of another version answers" } });
});

const { signal } = new AbortController();
const resolve = systemResolve();
const probe = hostProbe({
  // Without an identity, up to the first answer.
  askStanding: standingAsker("/var/empty"),
  dialler: (proxies) => hostDialler(systemClock(), proxies, resolve),
  resolve,
});
const standing = (session: string): Promise<Standing> =>
  probe.controlPlane({ session, pins: [] }, { noProxy: [] }, signal);

test("a control plane that greets a node is usable", async () => {
  const { port } = await aControlPlane("greets");
  expect(await standing(`ws://127.0.0.1:${port}`)).toBe("admitting");
  // Without TLS only this machine is asked, and a peer without TLS is unreachable.
  expect(await standing(`wss://127.0.0.1:${port}`)).toBe("unreached");
  expect(await standing("ws://192.0.2.1:1")).toBe("unreached");
});

// A portal's page, a proxy's login, a balancer without a target, a control plane that refuses everybody, and one that is out of order.
test.each([200, 302, 401, 403, 404, 407, 426, 429, 500, 503] as const)(
  "a control plane that answers %i would give the old version no session either",
  async (status) => {
    const { port } = await aControlPlane(status);
    expect(await standing(`ws://127.0.0.1:${port}`)).toBe("unreached");
  },
);

test("nor would one with other words, without JSON, or that closes", async () => {
  await atOnce(["other words", "no JSON", "closes"] as const, String, async (how) => {
    const { port } = await aControlPlane(how);
    expect(await standing(`ws://127.0.0.1:${port}`)).toBe("unreached");
  });
});
