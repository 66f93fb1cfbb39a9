import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  beginSession,
  deadlineOf,
  HANDSHAKE_MS,
  step,
  type Effect,
  type SessionEvent,
  type SessionState,
} from "../../../../src/agent/session/machine.ts";

const half = () => 0.5;

/** Drives the machine through events at given times; returns the last state and all effects. */
function drive(events: readonly (readonly [number, SessionEvent])[], random = half): [SessionState, Effect[]] {
  let state = beginSession(0);
  const effects: Effect[] = [];
  for (const [now, event] of events) {
    const [next, out] = step(state, event, now, random);
    state = next;
    effects.push(...out);
  }
  return [state, effects];
}

const online: readonly (readonly [number, SessionEvent])[] = [
  [0, { type: "timer" }],
  [100, { type: "opened" }],
];

describe("connecting", () => {
  test("begins at once", () => {
    const [state, effects] = drive([[0, { type: "timer" }]]);
    expect(state).toMatchObject({ at: "connecting", deadlineAt: HANDSHAKE_MS });
    expect(effects).toEqual([{ do: "dial" }]);
  });

  test("is cut when the handshake takes too long", () => {
    const [state, effects] = drive([
      [0, { type: "timer" }],
      [HANDSHAKE_MS, { type: "timer" }],
    ]);
    expect(state.at).toBe("waiting");
    expect(effects.at(-1)).toEqual({ do: "terminate", reason: "handshake-timeout" });
  });

  test("is retried at once after a wake-up meanwhile", () => {
    const [state] = drive([
      [0, { type: "timer" }],
      [4000, { type: "wake", cause: "network" }],
      [5000, { type: "ended", ending: { kind: "failed" } }],
    ]);
    expect(state).toMatchObject({ at: "waiting", retryAt: 5000 });
  });
});

describe("online", () => {
  test("pings, and gives up after 37.5 s of silence", () => {
    const [waiting, effects] = drive([
      ...online,
      [15_100, { type: "timer" }],
      [30_100, { type: "timer" }],
      [37_600, { type: "timer" }],
    ]);
    expect(effects).toEqual([{ do: "dial" }, { do: "ping" }, { do: "ping" }, { do: "terminate", reason: "silent" }]);
    expect(waiting.at).toBe("waiting");
  });

  test("only received data counts as activity", () => {
    const [state] = drive([
      ...online,
      [15_100, { type: "timer" }],
      [16_000, { type: "heard" }],
      [30_100, { type: "timer" }],
    ]);
    expect(state).toMatchObject({ at: "online", lastHeardAt: 16_000, deadAt: 53_500 });
  });

  test("a process that was stopped for minutes pings before it gives up", () => {
    const [probing, effects] = drive([...online, [600_000, { type: "timer" }]]);
    expect(probing).toMatchObject({ at: "online", deadAt: 610_000 });
    expect(effects.at(-1)).toEqual({ do: "ping" });
    const [dead] = step(probing, { type: "timer" }, 610_000, half);
    expect(dead.at).toBe("waiting");
  });

  test("repeated wake-ups do not delay the detection of silence", () => {
    let [state] = drive(online);
    for (let now = 1000; now < 12_000; now += 1000)
      [state] = step(state, { type: "wake", cause: "network" }, now, half);
    expect(state).toMatchObject({ deadAt: 11_000 });
  });

  test("resets the backoff only after a minute of stability", () => {
    const [young] = drive([...online, [59_000, { type: "ended", ending: { kind: "failed" } }]]);
    const [old] = drive([...online, [60_100, { type: "ended", ending: { kind: "failed" } }]]);
    expect(young).toMatchObject({ past: { failures: 2, offlineSince: 0 } });
    expect(old).toMatchObject({ past: { failures: 0, offlineSince: 60_100 } });
  });
});

describe("waiting", () => {
  const lost: readonly (readonly [number, SessionEvent])[] = [
    ...online,
    [70_000, { type: "ended", ending: { kind: "failed" } }],
  ];
  const reported = (ending: { kind: "asked-to-wait"; delayMs: number } | { kind: "deleted" }) =>
    [...online, [70_000, { type: "ended", ending }]] as const;

  test("a change of the network ends our own backoff", () => {
    const [state] = drive([...lost, [71_500, { type: "wake", cause: "network" }]]);
    expect(state.at).toBe("connecting");
  });

  test.each([reported({ kind: "asked-to-wait", delayMs: 60_000 }), reported({ kind: "deleted" })])(
    "but not a delay that the control plane requested, unless an operator asks",
    (...events) => {
      expect(drive([...events, [75_000, { type: "wake", cause: "network" }]])[0].at).toBe("waiting");
      expect(drive([...events, [75_000, { type: "wake", cause: "operator" }]])[0].at).toBe("connecting");
    },
  );

  test("a burst of wake-ups makes at most one attempt a second", () => {
    let [state] = drive(lost);
    let dials = 0;
    for (let now = 71_000; now < 81_000; now += 50) {
      let effects: readonly Effect[];
      [state, effects] = step(state, { type: "wake", cause: "network" }, now, half);
      dials += effects.filter((effect) => effect.do === "dial").length;
      if (state.at === "waiting" && now >= state.retryAt) {
        [state, effects] = step(state, { type: "timer" }, now, half);
        dials += effects.length;
      }
      if (state.at === "connecting")
        [state] = step(state, { type: "ended", ending: { kind: "failed" } }, now + 1, half);
    }
    expect(dials).toBeLessThanOrEqual(11);
  });
});

test("at any moment there is a session, an attempt or exactly one timer, in any order of events", () => {
  const event = fc.oneof<fc.Arbitrary<SessionEvent>[]>(
    fc.constant({ type: "timer" }),
    fc.constant({ type: "opened" }),
    fc.constant({ type: "heard" }),
    fc.record({ type: fc.constant("wake" as const), cause: fc.constantFrom("network", "resumed", "operator") }),
    fc.record({
      type: fc.constant("ended" as const),
      ending: fc.oneof(
        fc.constantFrom({ kind: "failed" as const }, { kind: "deleted" as const }, { kind: "superseded" as const }),
        fc.record({ kind: fc.constant("asked-to-wait" as const), delayMs: fc.double() }),
      ),
    }),
  );
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(200_000), event)),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      (steps, random) => {
        let state = beginSession(0);
        let now = 0;
        for (const [pause, happening] of steps) {
          now += pause;
          const [next] = step(state, happening, now, () => random);
          state = next;
          const deadline = deadlineOf(state);
          expect(deadline).toBeGreaterThanOrEqual(0);
          expect(Number.isFinite(deadline)).toBe(true);
          // The delay never exceeds an hour and its jitter.
          expect(deadline).toBeLessThanOrEqual(now + 3_600_000 * 1.2 + 10_000);
        }
      },
    ),
  );
});

test("stopping is final", () => {
  const [state, effects] = drive([
    ...online,
    [200, { type: "stop" }],
    [300, { type: "timer" }],
    [400, { type: "wake", cause: "operator" }],
  ]);
  expect(state).toEqual({ at: "stopped" });
  expect(effects.at(-1)).toEqual({ do: "terminate", reason: "shutdown" });
  expect(deadlineOf(state)).toBeUndefined();
});
