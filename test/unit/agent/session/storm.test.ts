import { expect, test } from "vitest";
import { beginSession, deadlineOf, step, type SessionState } from "../../../../src/agent/session/machine.ts";

const NODES = 10_000;

/** Numerical Recipes' 32-bit generator: the same run every time. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Ten thousand nodes lose a control plane at the same moment; it refuses until it is back, then takes everybody. */
function simulate(outageMs: number): { attempts: number; recoveryPeak: number; allBackAt: number } {
  const random = seeded(1);
  const lostAt = 100_000;
  const backAt = lostAt + outageMs;
  const recovery = new Map<number, number>();
  let attempts = 0;
  let allBackAt = 0;
  for (let node = 0; node < NODES; node += 1) {
    let state: SessionState = beginSession(0);
    [state] = step(state, { type: "timer" }, 0, random);
    [state] = step(state, { type: "opened" }, 1, random);
    [state] = step(state, { type: "ended", ending: { kind: "failed" } }, lostAt, random);
    while (state.at !== "online") {
      const now = deadlineOf(state) ?? 0;
      const isUp = now >= backAt;
      [state] = step(state, { type: "timer" }, now, random);
      attempts += 1;
      [state] = step(state, isUp ? { type: "opened" } : { type: "ended", ending: { kind: "failed" } }, now + 5, random);
      if (!isUp) continue;
      const second = Math.floor((now - backAt) / 1000);
      recovery.set(second, (recovery.get(second) ?? 0) + 1);
      allBackAt = Math.max(allBackAt, now - backAt);
    }
  }
  return { attempts: attempts / NODES, recoveryPeak: Math.max(...recovery.values()), allBackAt };
}

test.each([
  { name: "a restart of two seconds", outageMs: 2000, mean: 1.4, peak: 0.2, back: 30_000 },
  { name: "five minutes", outageMs: 300_000, mean: 16, peak: 0.05, back: 121_000 },
  { name: "two hours", outageMs: 7_200_000, mean: 140, peak: 0.05, back: 121_000 },
])("$name: few attempts a node, no peak when it is back, everybody back", ({ outageMs, mean, peak, back }) => {
  const { attempts, recoveryPeak, allBackAt } = simulate(outageMs);
  expect(attempts).toBeLessThan(mean);
  expect(recoveryPeak).toBeLessThan(NODES * peak);
  expect(allBackAt).toBeLessThan(back);
});
