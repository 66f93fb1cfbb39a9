import { expect, test } from "vitest";
import { HostError } from "../../../src/errors.ts";
import type { AgentView } from "../../../src/upgrade/agent-view.ts";
import { LIMITS } from "../../../src/upgrade/main.ts";
import { tryOld } from "../../../src/upgrade/try-old.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const [OLD, NEW] = ["0.1.20260101-0000", "0.1.20260202-0000"] as const;
const ONLINE = { state: "online", hasBeaten: true, reason: undefined };
const WAITING = { state: "waiting", hasBeaten: false, reason: "connection-lost" };
type Session = AgentView["session"];

interface Given {
  /** The old agent's session after this time in ms; undefined without an answer. */
  readonly session: (ms: number) => Session | undefined;
  /** The launcher does not support the mark, or the disk or the manager fails. */
  readonly fault?: "ignored" | "disk" | "manager";
  readonly signal?: AbortSignal;
}

/** Returns the changes of the machine, in order, and the result after a number of seconds. */
async function tried({ session, fault, signal = new AbortController().signal }: Given) {
  const clock = new FakeClock();
  clock.sleep = (ms, limit) => (limit?.aborted === true ? Promise.reject(new Error("over")) : clock.advance(ms));
  const done: string[] = [];
  const output: string[] = [];
  const begun = clock.elapsed();
  let isAside = false;
  const seen: boolean[] = [];
  const onSeen = (hadSession: boolean): Promise<void> => {
    seen.push(hadSession);
    done.push("seen");
    return Promise.resolve();
  };
  let picked: string = NEW;
  const set = (is: boolean): Promise<void> => {
    if (is && fault === "disk") return Promise.reject(new HostError("disk-full", "no space left"));
    done.push(is ? "aside" : "back");
    isAside = is;
    return Promise.resolve();
  };
  const view = (): AgentView | undefined => {
    const says = picked === NEW ? WAITING : session(clock.elapsed() - begun);
    return says && { ...NOTHING, version: picked, session: says };
  };
  const end = await tryOld(
    {
      versions: { setAside: () => set(true), restore: () => set(false) },
      services: {
        restartAgent: () => {
          done.push("restart");
          picked = isAside && fault !== "ignored" ? OLD : NEW;
          const isRefused = fault === "manager" && isAside;
          return isRefused ? Promise.reject(new HostError("exec-failed", "no bus")) : Promise.resolve();
        },
        startAgent: () => Promise.resolve(),
        updateSystem: () => Promise.resolve(false),
        succeedOverlay: () => Promise.resolve(),
      },
      agent: { view: () => Promise.resolve(view()), poke: () => Promise.resolve() },
      clock,
      limits: LIMITS,
      print: (line) => void output.push(line),
    },
    { version: NEW, onSeen },
    signal,
  ).catch((error: unknown) => String(error));
  expect(seen).toEqual(typeof end === "boolean" ? [end] : []);
  return { end, done, output, seconds: Math.round((clock.elapsed() - begun) / 1000) };
}

const NOTHING: AgentView = {
  version: OLD,
  isRegistered: true,
  session: WAITING,
  documents: {},
  sections: new Map(),
  hasPendingChange: false,
  connectors: new Map(),
  services: new Map(),
  containers: new Map(),
  gateways: new Map(),
  targets: undefined,
};
/** The observation is stored before the other version starts: an interrupted verifier does not compare twice. */
const TURN = ["aside", "restart", "seen", "back", "restart"];
const SETTLE_S = LIMITS.settleMs / 1000;
const BACK_S = LIMITS.backMs / 1000;

test("an old version that has its session for a while did better, and hands over again", async () => {
  const late = (ms: number): Session | undefined => (ms < 5000 ? undefined : ms < 20_000 ? WAITING : ONLINE);
  expect(await tried({ session: late })).toEqual({ end: true, done: TURN, output: [], seconds: 20 + SETTLE_S });
});

test.each([
  ["has none", () => WAITING],
  ["loses it again and again", (ms: number) => (ms % 10_000 < 8000 ? ONLINE : WAITING)],
  ["has one of which no heartbeat was taken", () => ({ ...ONLINE, hasBeaten: false })],
  ["is sent away", () => ({ ...WAITING, reason: "too-many" })],
] as const)("one that %s did no better", async (_what, session) => {
  const { end, done, seconds } = await tried({ session });
  expect({ end, done }).toEqual({ end: false, done: TURN });
  expect(seconds).toBeGreaterThanOrEqual(BACK_S);
  expect(seconds).toBeLessThan(BACK_S + SETTLE_S);
});

test("a session that started just before the deadline may show whether it lasts", async () => {
  const at = LIMITS.backMs - 5000;
  const { end } = await tried({ session: (ms) => (ms < at ? WAITING : ONLINE) });
  expect(end).toBe(true);
});

test("an old version that never answers proves nothing", async () => {
  for (const given of [{ session: () => undefined }, { session: () => ONLINE, fault: "ignored" }] as const) {
    const done = TURN.filter((what) => what !== "seen");
    expect(await tried(given)).toMatchObject({ end: undefined, done });
  }
});

test("restores a version that cannot be replaced or started", async () => {
  const disk = await tried({ session: () => ONLINE, fault: "disk" });
  expect(disk).toMatchObject({ end: undefined, done: ["back"], seconds: 0 });
  expect(disk.output).toEqual(["cannot try the old version: no space left"]);
  const manager = await tried({ session: () => ONLINE, fault: "manager" });
  expect(manager).toMatchObject({ end: undefined, done: ["aside", "restart", "back"] });
});

test("an interruption leaves everything for the next verifier", async () => {
  const signal = AbortSignal.abort(new Error("told to stop"));
  const { end, done } = await tried({ session: () => WAITING, signal });
  expect(end).toBe("Error: told to stop");
  expect(done).toEqual(["aside", "restart"]);
});
