import { beginSession, deadlineOf, step, type SessionState } from "../../../src/agent/session/machine.ts";

export interface Storm {
  /** Mean number of attempts of a node until it is back. */
  readonly attempts: number;
  /** Largest number of nodes that reconnected within one second. */
  readonly recoveryPeak: number;
  /** Time of the last reconnection, in ms after the control plane's return. */
  readonly allBackAt: number;
}

/** Numerical Recipes' 32-bit generator: the same numbers in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Simulates nodes that lose a control plane at the same moment; it refuses during the outage, then accepts all. */
export function simulateStorm(nodes: number, outageMs: number): Storm {
  const random = seeded(1);
  const lostAt = 100_000;
  const backAt = lostAt + outageMs;
  const recovery = new Map<number, number>();
  let attempts = 0;
  let allBackAt = 0;
  for (let node = 0; node < nodes; node += 1) {
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
  return { attempts: attempts / nodes, recoveryPeak: Math.max(...recovery.values()), allBackAt };
}
