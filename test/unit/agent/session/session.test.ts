import { pino } from "pino";
import { expect, test } from "vitest";
import { SessionError } from "../../../../src/errors.ts";
import { Session } from "../../../../src/agent/session/session.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

/** A session whose control plane cannot be reached; random numbers are as large as they get. */
function begin(): { clock: FakeClock; session: Session } {
  const clock = new FakeClock();
  const session = new Session({
    clock,
    random: () => 0.999,
    log: pino({ level: "silent" }),
    open: () => Promise.reject(new SessionError("connect-failed", "nobody listens")),
    party: {
      target: () => Promise.resolve({ url: "ws://127.0.0.1:1/", pins: [], knownAddresses: [], timeoutMs: 10_000 }),
      prove: () => Promise.resolve(""),
      verify: () => Promise.reject(new Error("not reached")),
      reportedVersion: () => 0,
      isDeletion: () => Promise.resolve(false),
      reached: () => undefined,
    },
    handlers: () => ({}),
    onOnline: () => undefined,
    onOffline: () => undefined,
  });
  session.start();
  return { clock, session };
}

/** Lets attempts fail until the next is most of a minute away. */
async function backOff({ clock, session }: ReturnType<typeof begin>): Promise<number> {
  for (let round = 0; round < 300; round += 1) {
    await clock.advance(1000);
    const { state, retryAt = 0, attempt } = session.status();
    if (state === "waiting" && retryAt - clock.now() > 50_000) return attempt;
  }
  throw new Error("it never waited long");
}

test("a waiting node looks at once when the machine was asleep", async () => {
  const both = begin();
  const attempt = await backOff(both);
  both.clock.setWall(both.clock.now() + 8 * 3_600_000);
  await both.clock.advance(2500);
  expect(both.session.status().attempt).toBe(attempt + 1);
  both.session.close();
});

test("a small step of the wall clock is no sleep", async () => {
  const both = begin();
  const attempt = await backOff(both);
  both.clock.setWall(both.clock.now() + 5000);
  await both.clock.advance(20_000);
  expect(both.session.status().attempt).toBe(attempt);
  both.session.close();
  expect(both.clock.pendingTimers).toBe(0);
});
