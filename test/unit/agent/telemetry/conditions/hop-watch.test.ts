import { expect, test } from "vitest";
import { HostError } from "../../../../../src/errors.ts";
import type { ExecResult } from "../../../../../src/host/process/exec.ts";
import { hopWatch, mtrArguments, type HopTarget } from "../../../../../src/agent/telemetry/conditions/hop-watch.ts";
import { pino } from "pino";
import { FakeClock } from "../../../../support/fake-clock.ts";

const GW1: HopTarget = { gateway: "a", path: "", ip: "192.0.2.1", port: 8443, protocol: "syn", payload: 0 };
const GW2: HopTarget = { ...GW1, gateway: "b", path: "wan2", ip: "192.0.2.2" };
const hub = { count: 1, host: "10.0.0.1", "Loss%": 0, Snt: 3, Avg: 1, Best: 1, Wrst: 1 };
const DONE: ExecResult = {
  exitCode: 0,
  signal: undefined,
  stdout: JSON.stringify({ report: { hubs: [hub] } }),
  stderr: "",
  truncated: false,
};

function setUp(targets: readonly HopTarget[], answer: () => Promise<ExecResult> = () => Promise.resolve(DONE)) {
  const clock = new FakeClock();
  const ran: string[] = [];
  const unable: string[] = [];
  const now = { targets, isPermitted: true };
  const watch = hopWatch({
    clock,
    log: pino({ level: "silent" }),
    exec: {
      run(file, args, { signal }) {
        ran.push(`${file} ${args.join(" ")}`);
        return Promise.race([
          answer(),
          new Promise<never>((_, reject) => {
            signal.addEventListener("abort", () => reject(new Error("aborted")), { once: true });
          }),
        ]);
      },
    },
    wish: () => ({ intervalMs: 20_000, targets: now.targets }),
    isPermitted: () => now.isPermitted,
    onUnable: (why) => void unable.push(why),
  });
  return { clock, ran, unable, now, watch };
}

test("traces every path once in an interval, one after the other, and reports its runs together", async () => {
  const rig = setUp([GW1, GW2]);
  rig.watch.refresh();
  await rig.clock.advance(45_000);
  expect(rig.ran.map((line) => line.split(" ").at(-1))).toEqual([1, 2, 3].flatMap(() => ["192.0.2.1", "192.0.2.2"]));
  expect(rig.watch.take("a", "")).toMatchObject([{ hop: 1, ip: "10.0.0.1", numRtt: 9 }]);
  expect(rig.watch.take("a", "")).toEqual([]);
  expect(rig.watch.take("b", "wan2")).toHaveLength(1);
  expect(rig.watch.take("b", "")).toEqual([]);
});

test("traces nothing without monitors, or after the end", async () => {
  const rig = setUp([]);
  rig.watch.refresh();
  await rig.clock.advance(60_000);
  expect([rig.ran.length, rig.clock.pendingTimers]).toEqual([0, 0]);
  rig.now.targets = [GW1];
  rig.watch.refresh();
  await rig.clock.advance(1000);
  rig.watch.close();
  await rig.clock.advance(60_000);
  expect(rig.ran).toHaveLength(1);
});

test("ends a run that hangs, with all its processes", async () => {
  const rig = setUp([GW1], () => new Promise(() => undefined));
  rig.watch.refresh();
  await rig.clock.advance(60_000);
  expect(rig.ran).toHaveLength(1);
  rig.watch.close();
  await rig.clock.advance(60_000);
  expect([rig.ran.length, rig.unable]).toEqual([1, []]);
});

test.each([
  [
    "a refusal by the machine",
    () =>
      Promise.resolve({
        ...DONE,
        exitCode: 1,
        stderr: "mtr-packet: Failure to open IPv4 sockets: Operation not permitted",
      }),
    /not permitted to trace/,
  ],
] as const)("reports %s once, and stops trying", async (_, answer, why) => {
  const rig = setUp([GW1, GW2], answer);
  rig.watch.refresh();
  await rig.clock.advance(120_000);
  rig.watch.refresh();
  await rig.clock.advance(120_000);
  expect([rig.ran.length, rig.unable.length]).toEqual([1, 1]);
  expect(rig.unable[0]).toMatch(why);
});

test("reports a missing tool once, retries at each interval, and uses it when installed", async () => {
  const missing = (): Promise<ExecResult> => Promise.reject(new HostError("tool-missing", "mtr is missing"));
  let answer = missing;
  const rig = setUp([GW1, GW2], () => answer());
  rig.watch.refresh();
  await rig.clock.advance(50_000);
  // The other path would not find the tool either.
  expect([rig.ran.length, rig.unable.length]).toEqual([3, 1]);
  expect(rig.unable[0]).toMatch(/not installed/);
  answer = () => Promise.resolve(DONE);
  await rig.clock.advance(20_000);
  expect(rig.watch.take("a", "")).toHaveLength(1);
  answer = missing;
  await rig.clock.advance(20_000);
  expect(rig.unable).toHaveLength(2);
});

test("starts nothing without the capability", async () => {
  const rig = setUp([GW1]);
  rig.now.isPermitted = false;
  rig.watch.refresh();
  await rig.clock.advance(60_000);
  expect([rig.ran.length, rig.unable.length]).toEqual([0, 1]);
});

test.each([
  ["a failure", () => Promise.resolve({ ...DONE, exitCode: 1, stderr: "Name or service not known" })],
  ["no report", () => Promise.resolve({ ...DONE, stdout: "nonsense" })],
  ["an end too late", () => Promise.reject(new HostError("timeout", "too late"))],
])("%s gives no hops and is retried", async (_, answer) => {
  const rig = setUp([GW1], answer);
  rig.watch.refresh();
  await rig.clock.advance(25_000);
  expect([rig.ran.length, rig.watch.take("a", ""), rig.unable]).toEqual([2, [], []]);
});

test("deletes results of paths that are not traced any more, and bounds those that are not read", async () => {
  const rig = setUp([GW1]);
  rig.watch.refresh();
  await rig.clock.advance(20_000 * 40);
  expect(rig.watch.take("a", "")[0]?.numRtt).toBe(48);
  await rig.clock.advance(20_000);
  rig.now.targets = [GW2];
  await rig.clock.advance(20_000);
  expect(rig.watch.take("a", "")).toEqual([]);
});

test.each([
  [GW1, "--json --tcp -P 8443 -n -c 3 -i 1 -- 192.0.2.1"],
  [{ ...GW1, local: "10.0.0.2", payload: 100 }, "--json --tcp -P 8443 -n -c 3 -i 1 -s 140 -a 10.0.0.2 -- 192.0.2.1"],
  [{ ...GW1, protocol: "sack" }, "--json --tcp -P 8443 -n -c 3 -i 1 -- 192.0.2.1"],
  [{ ...GW1, protocol: "icmp", payload: 56 }, "--json -n -c 3 -i 1 -s 84 -- 192.0.2.1"],
] as const)("runs the tool with the options of the section: %#", (target, expected) => {
  expect(mtrArguments(target).join(" ")).toBe(expected);
});
