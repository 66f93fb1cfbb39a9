import { pino } from "pino";
import { expect, it } from "vitest";
import { clockReasons, KnownTime, reportClock } from "../../../../src/agent/telemetry/known-time.ts";
import type { Clock } from "../../../../src/host/clock.ts";
import { buildTime } from "../../../../src/lib/build-info.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const BUILT = Date.UTC(2026, 10, 21, 18, 31, 6);
const DAY = 24 * 3600 * 1000;

function rig(now: number, kept?: number) {
  const base = new FakeClock();
  const time = { now, sinceBoot: 1000 };
  const clock: Clock = {
    now: () => time.now,
    elapsed: () => base.elapsed(),
    sinceBoot: () => time.sinceBoot,
    sleep: (ms, signal) => base.sleep(ms, signal),
    after: (ms, run) => base.after(ms, run),
  };
  const saved: number[] = [];
  const file = { save: ({ at }: { readonly at: number }) => Promise.resolve(void saved.push(at)) };
  const known = new KnownTime({
    clock,
    log: pino({ level: "silent" }),
    file,
    kept: kept === undefined ? undefined : { at: kept },
    builtAt: BUILT,
    onFault: () => undefined,
  });
  const pass = (ms: number): void => {
    time.now += ms;
    time.sinceBoot += ms;
  };
  return { known, time, saved, pass };
}

it("reads the time of a build", () => {
  expect(buildTime({ build: "20261121-183106.b98d6d0d30da" })).toBe(BUILT);
  expect(buildTime({ build: "source" })).toBeUndefined();
});

it("a clock before the build is behind, and timestamps continue from the build", () => {
  const { known, pass } = rig(60_000);
  expect(known.behind()).toEqual({ state: "clock-behind", clockAt: 60_000, knownAt: BUILT, by: "build" });
  pass(5000);
  expect(known.stamps.now()).toBe(BUILT + 5000);
  expect(clockReasons(known)).toMatchObject([
    {
      section: "clock",
      code: "clock-behind",
      since: 60_000,
      message: expect.stringContaining("1970-01-01 00:01:05 UTC") as string,
    },
  ]);
});

it("is right at once when set, and reports nothing more", () => {
  const { known, time } = rig(60_000);
  time.now = BUILT + DAY;
  expect(known.refresh()).toBeUndefined();
  expect(clockReasons(known)).toEqual([]);
  expect(known.stamps.now()).toBe(BUILT + DAY);
});

it("is compared with the stored time if that is later, and with the server's only once that is known", () => {
  const { known, time } = rig(BUILT + DAY, BUILT + 10 * DAY);
  expect(known.behind()).toMatchObject({ knownAt: BUILT + 10 * DAY, by: "control-plane" });
  // The stored time came from a control plane with a wrong clock.
  known.receive(BUILT + DAY);
  expect(known.behind()).toBeUndefined();
  time.now -= 301_000;
  expect(known.behind()).toMatchObject({ knownAt: BUILT + DAY, by: "control-plane" });
  expect(known.offsetSeconds()).toBe(-301);
});

it("less than five minutes are only an offset", () => {
  const { known } = rig(BUILT + DAY - 299_000);
  known.receive(BUILT + DAY);
  expect(known.behind()).toBeUndefined();
  expect(known.offsetSeconds()).toBe(-299);
});

it("is stored once a day, when the server corrects it, and at a clean stop with the elapsed time", async () => {
  const { known, saved, pass } = rig(BUILT + DAY, BUILT);
  known.receive(BUILT + DAY);
  known.receive(BUILT + DAY + 1000);
  known.receive(BUILT + 2 * DAY - 1);
  expect(saved).toEqual([BUILT + DAY]);
  known.receive(BUILT + 2 * DAY);
  known.receive(BUILT + DAY);
  expect(saved).toEqual([BUILT + DAY, BUILT + 2 * DAY, BUILT + DAY]);
  pass(7000);
  await known.stopped();
  expect(saved.at(-1)).toBe(BUILT + DAY + 7000);
});

it("writes nothing at a stop when no control plane has sent the time", async () => {
  const { known, saved } = rig(BUILT + DAY, BUILT);
  await known.stopped();
  expect(saved).toEqual([]);
});

it("a clock that is off by more than 300 s raises one event, which is cleared within 60 s of a right clock", () => {
  const { known, time } = rig(BUILT + DAY);
  const reported: string[] = [];
  const events = {
    raise: ({ level, message }: { level: string; message: string }) => void reported.push(`${level} ${message}`),
    clear: ({ message }: { message: string }) => void reported.push(`clear ${message}`),
  };
  reportClock(known, events);
  expect(reported).toEqual([]);
  known.receive(time.now - 301_000);
  reportClock(known, events);
  known.receive(time.now + 900_000);
  reportClock(known, events);
  expect(reported.splice(0)).toEqual([
    "ERROR This machine's clock is 301 s ahead of the control plane's",
    "ERROR This machine's clock is 900 s behind the control plane's",
  ]);
  known.receive(time.now + 120_000);
  reportClock(known, events);
  expect(reported).toEqual([]);
  known.receive(time.now + 1000);
  reportClock(known, events);
  expect(reported).toEqual(["clear This machine's clock agrees with the control plane's"]);
});
