import { expect, test } from "vitest";
import {
  journallingTrigger,
  registering,
  rollingBack,
  savingDocument,
  type Operation,
} from "../../support/kills/durable-operations.ts";
import { inLanes } from "../../support/network/lanes.ts";
import { runController } from "../../support/control-plane/running-controller.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { describePoint, pointsOf, recordCalls, runKilled, type Launch } from "../../support/kills/strace.ts";

const LIMIT_MS = 900_000;
/** Each run mostly waits for its tracer and for the disk. */
const LANES = 3;

/** Kills the operation at each of its state-changing system calls, one run for each, and checks the result. */
async function killEverywhere<L extends Launch>(operation: Operation<L>, size: number, label: string): Promise<void> {
  const whole = await operation.prepare();
  const points = pointsOf(await recordCalls(whole), whole);
  await operation.checkDone(whole);
  expect(points.length).toBeGreaterThan(10);
  await inLanes(sampleOf(points, size, label), LANES, async (point) => {
    const killed = await runKilled(() => operation.prepare(), point);
    try {
      await operation.check(killed);
    } catch (error) {
      throw new Error(`killed at ${describePoint(point)}`, { cause: error });
    }
  });
}

test(
  "registering, killed anywhere, can be repeated and makes one node",
  async () => killEverywhere(registering(await runController()), 3, "registration"),
  LIMIT_MS,
);

test(
  "saving a document, killed anywhere, leaves the old one or the new one applied",
  async () => killEverywhere(await savingDocument(), 2, "document"),
  LIMIT_MS,
);

test.runIf(isDue("killed rollback"))(
  "rolling a document back, killed anywhere, leaves it unchanged or rolls it back completely",
  async () => killEverywhere(await rollingBack(), 2, "rollback"),
  LIMIT_MS,
);

test(
  "journalling a trigger, killed anywhere, runs it at most once and answers it always",
  async () => killEverywhere(await journallingTrigger(), 2, "trigger"),
  LIMIT_MS,
);
