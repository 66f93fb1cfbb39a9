import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { TransferEvent } from "../../../../src/protocol/triggers/transfer.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { stage, type Given } from "./rig.ts";

describe("an abandoned multipart upload", () => {
  const body = { action: "S3_UPLOAD", filePath: "images/f", bucketDest: "s3://bucket/f" };
  /** A task that has started an upload on the server. */
  const begun = async (given: Given = {}) => {
    const made = stage(given);
    writeFileSync(join(made.root, "images/f"), "x");
    const id = await made.begin(body);
    made.puppets[0]?.tell({ is: "resumable", resume: { bytes: 5, total: 9, uploadId: "u1" } });
    return { ...made, id };
  };
  const details = async ({ shown }: ReturnType<typeof stage>) => (await shown()).map((task) => task.details);

  test.each<[string, TransferEvent, string]>([
    ["is taken back", { is: "done", bytes: 0 }, "cancelled"],
    [
      "is named when it cannot be",
      { is: "failed", code: "s3-failed", message: "no answer" },
      "cancelled; the unfinished upload u1 is left",
    ],
  ])("%s, when no process of it runs", async (_, output, reported) => {
    const made = await begun();
    made.puppets[0]?.end("SIGKILL");
    await settle();
    const cancelled = made.call({ action: "CANCEL", id: made.id });
    await waitFor("another process aborts it", () => made.puppets.length === 2);
    expect(made.puppets[1]?.job).toMatchObject({
      kind: "s3-abort",
      bucket: "bucket",
      key: "f",
      resume: { uploadId: "u1" },
    });
    expect(await details(made)).toEqual(["cancelled; the unfinished upload u1 is left"]);
    made.puppets[1]?.tell(output);
    made.puppets[1]?.end();
    await cancelled;
    expect(await details(made)).toEqual([reported]);
  });

  test("is aborted by another process when its own was killed during it, and by none when it did so itself", async () => {
    const killed = await begun();
    void killed.call({ action: "CANCEL", id: killed.id });
    killed.puppets[0]?.end("SIGKILL");
    await waitFor("another process aborts it", () => killed.puppets.length === 2);
    killed.puppets[1]?.end();
    const tidy = await begun();
    const cancelled = tidy.call({ action: "CANCEL", id: tidy.id });
    tidy.puppets[0]?.tell({ is: "resumable", resume: { bytes: 0, total: 9 } });
    tidy.puppets[0]?.tell({ is: "failed", code: "cancelled", message: "cancelled" });
    tidy.puppets[0]?.end();
    await cancelled;
    expect(await details(tidy)).toEqual(["cancelled"]);
    expect(tidy.puppets).toHaveLength(1);
  });

  test("is aborted when its file does not exist after a restart", async () => {
    const first = await begun();
    await first.close();
    rmSync(join(first.root, "images/f"));
    const second = stage({ dir: first.dir });
    second.dataStore.reopen();
    await waitFor("a process aborts it", () => second.puppets.length === 1);
    expect(second.puppets[0]?.job.kind).toBe("s3-abort");
    second.puppets[0]?.tell({ is: "done", bytes: 0 });
    second.puppets[0]?.end();
    await settle();
    expect(await details(second)).toEqual([expect.stringMatching(/^cannot open "images\/f"[^;]*$/)]);
  });

  test("is given up after a while, and when the agent stops", async () => {
    const clock = new FakeClock();
    const made = await begun({ clock });
    made.puppets[0]?.tell({ is: "failed", code: "access-denied", message: "no" });
    made.puppets[0]?.end();
    await waitFor("another process aborts it", () => made.puppets.length === 2);
    await clock.advance(20_000);
    expect(made.puppets[1]?.orders).toEqual(["leave"]);
    expect(await details(made)).toEqual(["no; the unfinished upload u1 is left"]);
  });
});
