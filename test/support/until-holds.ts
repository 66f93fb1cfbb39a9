import { vi } from "vitest";

/** Waits until the assertion does not throw, and returns its result; vitest's limit of a second is too short on a busy machine. */
export function untilHolds<T>(assertion: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(assertion, { timeout: 120_000, interval: 20 });
}
