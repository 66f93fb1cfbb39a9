import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openStore } from "../../../src/host/data-store/open-store.ts";
import { datasync } from "../../../src/host/files/open-bytes.ts";
import { Sink } from "../../../src/transfer/sink.ts";
import { FakeClock, settle } from "../../support/fake-clock.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const ID = "6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11";
const SPACE = { freeBytes: 100, totalBytes: 100 };

/** A sink that has checked the disk once; later checks wait for the test. */
async function stage() {
  const clock = new FakeClock();
  const store = openStore(join(tempDir(), "store"));
  const part = store.openPart("a", ID, 0);
  onTestFinished(() => {
    part.discard();
    store.close();
  });
  const requested: (() => void)[] = [];
  const synced: number[] = [];
  const sink = new Sink({
    part,
    space: () => new Promise((resolve) => requested.push(() => resolve(SPACE))),
    limits: { maxBytes: 1000, reserveRatio: 0 },
    clock,
    algo: undefined,
    onSynced: (bytes) => synced.push(bytes),
    fail(error) {
      throw error;
    },
  });
  sink.isResumable = true;
  sink.append(Buffer.from("12345"), 0, 5);
  requested.shift()?.();
  await settle();
  return { sink, part, clock, requested, synced };
}

test("reports what is on the disk at intervals", async () => {
  const { clock, requested, synced, sink } = await stage();
  await clock.advance(2000);
  requested[0]?.();
  await waitFor("it is reported", () => synced.length === 1);
  expect(synced).toEqual([5]);
  sink.close();
});

test("does not report what reaches the disk after the end, which has the total", async () => {
  const { sink, part, clock, requested, synced } = await stage();
  await clock.advance(2000);
  expect(requested).toHaveLength(1);
  sink.close();
  requested[0]?.();
  // A sync that started before these has ended after them.
  for (let n = 0; n < 20; n += 1) await datasync(part.fd);
  await clock.advance(10_000);
  expect(synced).toEqual([]);
  expect(requested).toHaveLength(1);
});
