import { expect, test } from "vitest";
import type { Exec, ExecResult } from "../../../../../src/host/process/exec.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import {
  arpAnswers,
  nextArpWatch,
  staleArp,
  startArpProbe,
  type ArpWatch,
} from "../../../../../src/agent/telemetry/conditions/arp-watch.ts";

const OWN = "02:00:00:00:00:01";
const OTHER = "fa:6f:48:4c:79:a9";

test("parses who answered from the output of arping", () => {
  const text = `ARPING 10.77.0.2
42 bytes from ${OTHER} (10.77.0.2): index=0 time=8.372 usec
42 bytes from 02:00:00:00:00:AA (10.77.0.2): index=1 time=5.438 usec
Timeout

--- 10.77.0.2 statistics ---
`;
  expect([...arpAnswers(text)]).toEqual([OTHER, "02:00:00:00:00:aa"]);
  expect(arpAnswers("ARPING 10.77.0.77\nTimeout\n").size).toBe(0);
});

test("one foreign answer is a conflict at once; three probes without one end it", () => {
  let watch: ArpWatch = { isStale: false, clean: 0 };
  const seen = [[OWN], [OWN, OTHER], [], [OWN], [OTHER], [], [OWN], [OWN], []].map((answers) => {
    watch = nextArpWatch(watch, new Set(answers), OWN.toUpperCase());
    return watch.isStale;
  });
  expect(seen).toEqual([false, true, true, true, true, true, true, false, false]);
});

test("reports a conflict as critical, with who answered", () => {
  expect(staleArp("10.77.0.2", "wan0", new Set([OTHER]))).toMatchObject({
    eventType: "Network Error",
    object: "arp:10.77.0.2",
    level: "CRITICAL",
    details: { address: "10.77.0.2", interface: "wan0", macs: [OTHER] },
  });
});

test("probes once a minute, only while the address is held", async () => {
  const clock = new FakeClock();
  const machine = {
    held: [] as { address: string; link: string; mac: string }[],
    answers: [] as string[],
    calls: 0,
    changes: 0,
  };
  const run = (_file: string, args: readonly string[]): Promise<ExecResult> => {
    machine.calls += 1;
    expect(args).toEqual(["-i", "wan0", "-c", "1", "-w", "2", "--", "10.77.0.2"]);
    const stdout = machine.answers.map((mac) => `42 bytes from ${mac} (10.77.0.2): index=0\n`).join("");
    return Promise.resolve({ exitCode: 0, signal: undefined, stdout, stderr: "", truncated: false });
  };
  const exec: Exec = { run, spawn: () => expect.unreachable() };
  const probe = startArpProbe({
    clock,
    exec,
    held: () => machine.held,
    onChange: () => (machine.changes += 1),
    onError: (error) => expect.unreachable(error.message),
  });
  probe.refresh();
  await clock.advance(3_600_000);
  expect([machine.calls, clock.pendingTimers]).toEqual([0, 0]);
  machine.held = [{ address: "10.77.0.2", link: "wan0", mac: OWN }];
  machine.answers = [OTHER];
  probe.refresh();
  probe.refresh();
  await clock.advance(60_000);
  expect(machine.calls).toBe(1);
  expect(probe.conditions()).toEqual([staleArp("10.77.0.2", "wan0", new Set([OTHER]))]);
  machine.answers = [];
  await clock.advance(120_000);
  expect(probe.conditions()).toHaveLength(1);
  await clock.advance(60_000);
  expect(probe.conditions()).toEqual([]);
  expect(machine.changes).toBe(4);
  machine.held = [];
  probe.refresh();
  expect(clock.pendingTimers).toBe(0);
});
