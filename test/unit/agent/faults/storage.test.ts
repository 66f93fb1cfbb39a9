import { expect, test } from "vitest";
import { StorageWatch } from "../../../../src/agent/faults/storage.ts";
import { HostError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const full = new HostError("disk-full", "no space");

function bench() {
  const clock = new FakeClock();
  const reported: string[] = [];
  let isFull = true;
  let probes = 0;
  const watch = new StorageWatch({
    clock,
    onRefused: ({ message }) => reported.push(message),
    onAccepted: () => reported.push("accepted"),
  });
  watch.begin(() => {
    probes += 1;
    return isFull ? Promise.reject(full) : Promise.resolve();
  });
  const probed = async (count: number): Promise<void> => {
    await clock.advance(10_000);
    expect(probes).toBe(count);
  };
  return { clock, watch, reported, probed, free: () => (isFull = false) };
}

test("reports a refused write once, and retries until the disk accepts it", async () => {
  const { clock, watch, reported, probed, free } = bench();
  expect(watch.refusal).toBeUndefined();
  watch.refused(full);
  watch.refused(full);
  expect(watch.refusal).toEqual({ message: "no space", since: clock.now() });
  await probed(1);
  expect([reported, watch.refusal?.message]).toEqual([["no space"], "no space"]);
  free();
  await probed(2);
  expect(watch.refusal).toBeUndefined();
  expect(reported).toEqual(["no space", "accepted"]);
  watch.refused(full);
  expect(reported).toHaveLength(3);
});

test("watched files work as usual and report each refusal", async () => {
  const { watch } = bench();
  const files = watch.watched(hostFiles(tempDir()));
  await files.writeAtomic("/a", "1", 0o600);
  await files.move("/a", "/b");
  expect([await files.read("/b"), watch.refusal]).toEqual(["1", undefined]);
  await expect(files.writeAtomic("/no/a", "1", 0o600)).rejects.toMatchObject({ code: "file-failed" });
  expect(watch.refusal?.message).toContain("/no/a");
});

test("a closed watch reports nothing", async () => {
  const { clock, watch, reported } = bench();
  watch.refused(full);
  watch.close();
  await clock.advance(60_000);
  expect(reported).toEqual(["no space"]);
});

test.each([86_400_000, -86_400_000])(
  "the age of a refusal does not depend on the wall clock, set by %i ms",
  async (ms) => {
    const { clock, watch } = bench();
    watch.refused(full);
    await clock.advance(5000);
    clock.setWall(clock.now() + ms);
    expect(watch.refusal?.since).toBe(clock.now() - 5000);
  },
);
