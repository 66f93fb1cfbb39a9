import { describe, expect, it } from "vitest";
import { Gate } from "../../../src/overlay/gate.ts";
import { FakeClock } from "../../support/fake-clock.ts";

/** A flow that always has more to read. */
function reader(gate: Gate, chunk: number) {
  const user = {
    bytes: 0,
    resumeFromGate() {
      do user.bytes += chunk;
      while (gate.pass(user, chunk));
    },
  };
  return user;
}

describe("Gate", () => {
  it("lets everybody through without a rate", () => {
    const gate = new Gate(new FakeClock(), undefined);
    expect(gate.isOpen).toBe(true);
    expect(gate.pass({ resumeFromGate: () => undefined }, 1e9)).toBe(true);
  });

  it.each([100_000, 8_000_000, 800_000_000])("holds %d bit/s over ten seconds, shared evenly", async (rate) => {
    const clock = new FakeClock();
    const gate = new Gate(clock, rate);
    const users = [reader(gate, 16_384), reader(gate, 16_384), reader(gate, 16_384)];
    for (const user of users) user.resumeFromGate();
    await clock.advance(10_000);
    const total = users.reduce((sum, { bytes }) => sum + bytes, 0);
    const burst = Math.max(65_536, rate / 80);
    expect(total).toBeGreaterThan((rate / 8) * 10 * 0.98);
    expect(total).toBeLessThan((rate / 8) * 10 + burst + 4 * 65_536);
    const shares = users.map(({ bytes }) => bytes / total);
    if (rate > 1e6) for (const share of shares) expect(share).toBeGreaterThan(0.2);
  });

  it("frees those who wait when the limit goes, and forgets those who leave", async () => {
    const clock = new FakeClock();
    const gate = new Gate(clock, 8000);
    let resumed = 0;
    const stays = { resumeFromGate: () => void (resumed += 1) };
    const leaves = { resumeFromGate: () => void (resumed += 100) };
    expect(gate.pass(stays, 100_000)).toBe(false);
    expect(gate.pass(leaves, 1)).toBe(false);
    gate.leave(leaves);
    gate.setRate(undefined);
    expect(resumed).toBe(1);
    await clock.advance(3_600_000);
    expect(clock.pendingTimers).toBe(0);
  });
});
