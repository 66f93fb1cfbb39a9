import { backoff, jitter, type Random } from "../../lib/async/backoff.ts";

const FIRST_SPREAD_MS = 10_000;
const FIRST_MS = 4000;
const FLOOR_MS = 500;
const CAP_MS = 60_000;
const LATE_CAP_MS = 120_000;
const LATE_AFTER_MS = 600_000;
const HOUR_MS = 3_600_000;

/** Reason why the last session or attempt ended, which determines the delay of the next. */
export type Ending =
  | { readonly kind: "failed" } // could not be reached, or the session was lost
  | { readonly kind: "not-authentic" } // 4001: retried, but without hurry
  | { readonly kind: "superseded" } // 4002, after the server had proved itself
  | { readonly kind: "deleted" } // 4003 with a verified statement
  | { readonly kind: "protocol-version" } // 4004, after the server had proved itself
  | { readonly kind: "asked-to-wait"; readonly delayMs: number }; // 4008, 429, 503

export interface BackoffInput {
  readonly ending: Ending;
  /** Attempts that failed since the last stable session; zero right after losing one. */
  readonly failures: number;
  /** Time since the last session. */
  readonly offlineMs: number;
}

/** Milliseconds until the next attempt: full jitter applied after the cap, so that no fleet ever moves in step. */
export function retryDelay({ ending, failures, offlineMs }: BackoffInput, random: Random): number {
  const cap = offlineMs > LATE_AFTER_MS ? LATE_CAP_MS : CAP_MS;
  switch (ending.kind) {
    case "failed":
      if (failures === 0) return random() * FIRST_SPREAD_MS;
      return jittered(backoff(failures, { firstMs: FIRST_MS, maxMs: cap }), random);
    case "not-authentic":
      return jittered(cap, random);
    case "superseded":
      return jitter(30_000, [1, 2], random);
    case "deleted":
    case "protocol-version":
      return jitter(HOUR_MS, [0.9, 1.1], random);
    case "asked-to-wait": {
      // Every node was told the same moment, so the spread comes on top of it.
      const asked = Number.isNaN(ending.delayMs) ? 0 : Math.min(HOUR_MS, Math.max(0, ending.delayMs));
      return asked + jittered(Math.max(FIRST_SPREAD_MS, asked / 10), random);
    }
  }
}

function jittered(ceilingMs: number, random: Random): number {
  return Math.max(FLOOR_MS, random() * ceilingMs);
}
