import { expect, test } from "vitest";
import { MessageBudget } from "../../../../src/lib/async/message-budget.ts";

// 10 messages or 1,000 bytes a second, two seconds' worth at once.
const limits = { messagesPerSecond: 10, bytesPerSecond: 1000, burstSeconds: 2, patienceSeconds: 5 };

function budget() {
  return new MessageBudget(limits, 0);
}

test("a burst passes, and what exceeds it pauses reading until the rate has caught up", () => {
  const it = budget();
  expect(it.charge({ messages: 20 }, 0)).toEqual({ kind: "within" });
  expect(it.charge({ messages: 5 }, 0)).toEqual({ kind: "pause", ms: 500 });
  expect(it.charge({ messages: 1 }, 600)).toEqual({ kind: "within" });
});

test("bytes and messages draw on one budget", () => {
  const it = budget();
  expect(it.charge({ messages: 10, bytes: 1000 }, 0)).toEqual({ kind: "within" });
  expect(it.charge({ bytes: 100 }, 0)).toEqual({ kind: "pause", ms: 100 });
});

test("a sender at the sustained rate is never held up", () => {
  const it = budget();
  for (let at = 0; at < 600_000; at += 100) expect(it.charge({ messages: 1 }, at)).toEqual({ kind: "within" });
});

test("a peer that stays over its budget for longer than the patience has exceeded it", () => {
  const it = budget();
  it.charge({ messages: 20 }, 0);
  let at = 0;
  for (;;) {
    const verdict = it.charge({ messages: 10 }, at);
    if (verdict.kind !== "pause") {
      expect(verdict).toEqual({ kind: "exceeded" });
      break;
    }
    at += verdict.ms;
  }
  expect(at).toBeGreaterThan(limits.patienceSeconds * 1000 - 1001);
  expect(at).toBeLessThanOrEqual(limits.patienceSeconds * 1000);
});

test("a debt that would take longer than the patience is exceeded at once", () => {
  expect(budget().charge({ messages: 20 + 51 }, 0)).toEqual({ kind: "exceeded" });
});

test("quiet for half a burst ends the time over budget", () => {
  const it = budget();
  it.charge({ messages: 25 }, 0);
  // Back at half a burst at 1,500 ms.
  expect(it.charge({}, 1500)).toEqual({ kind: "within" });
  expect(it.charge({ messages: 60 }, 1500)).toEqual({ kind: "pause", ms: 5000 });
});
