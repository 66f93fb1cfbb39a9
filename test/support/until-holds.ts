import { vi } from "vitest";

/** Waits until the assertion does not throw any more and gives what it gives; vitest's own limit of a second is none for a busy machine. */
export function untilHolds<T>(assertion: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(assertion, { timeout: 120_000, interval: 20 });
}
