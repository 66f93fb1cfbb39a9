import { expect, test } from "vitest";
import { detailsOf, renderTask } from "../../../../src/agent/data-store/render.ts";
import {
  isOver,
  newTask,
  pathOf,
  step,
  targetOf,
  type Task,
  type TaskEvent,
  type Work,
} from "../../../../src/agent/data-store/tasks.ts";

const id = "6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11";
const download: Work = {
  action: "HTTP_DOWNLOAD",
  uri: "http://files.example/a.iso?token=secret",
  filename: "a.iso",
  location: "/isos/",
};
const upload: Work = { action: "HTTP_UPLOAD", filePath: "a.iso", uri: "http://files.example/up", multipart: false };
const deletion: Work = { action: "DELETE", filename: "old" };

const after = (work: Work, ...events: readonly TaskEvent[]): Task =>
  events.reduce((task, event, at) => step(task, event, 1000 + at), newTask(id, work, 1000));

const started: TaskEvent = { is: "started" };
const progress: TaskEvent = { is: "progress", bytes: 450_000_000, total: 1_000_000_000, rate: 12_300_000 };

test("reports percent, bytes, rate and remaining time of a transfer", () => {
  const { details, progress: numbers, status } = renderTask(after(download, started, progress));
  expect({ details, status }).toEqual({
    details: "45 % · 450.0 MB of 1.0 GB · 12.3 MB/s · 45 s left",
    status: "Running",
  });
  expect(numbers).toEqual({ bytes: 450_000_000, total: 1_000_000_000, rate: 12_300_000, secondsLeft: 45 });
});

test.each<[string, readonly TaskEvent[], string]>([
  ["waits", [], "waiting for its turn"],
  ["has no byte yet", [started], "connecting"],
  ["does not know how much there is", [started, { is: "progress", bytes: 1500, rate: 1000 }], "1.5 kB · 1.0 kB/s"],
  ["stands still", [started, { is: "progress", bytes: 10, total: 100, rate: 0 }], "10 % · 10 B of 100 B · 0 B/s"],
  [
    "has hours to go",
    [started, { is: "progress", bytes: 0, total: 10_000_000, rate: 1000 }],
    "0 % · 0 B of 10.0 MB · 1.0 kB/s · 2 h 47 min left",
  ],
  [
    "tries again",
    [started, progress, { is: "retry", reason: "the server closed the connection", afterMs: 1000 }],
    "45 % · 450.0 MB of 1.0 GB · trying again: the server closed the connection",
  ],
  ["has got everything", [started, { is: "done", bytes: 2500, hash: "ab12" }], "2.5 kB · ab12"],
  ["failed", [started, { is: "failed", code: "x", message: "the server answered 404" }], "the server answered 404"],
  ["was taken back", [started, progress, { is: "cancelled" }], "cancelled after 450.0 MB"],
  ["was taken back early", [{ is: "cancelled" }], "cancelled"],
])("reports a transfer that %s", (_, events, details) => {
  expect(detailsOf(after(download, ...events).state)).toBe(details);
});

test("shows no part of an address that could be a credential, and deletes it with the end of the task", () => {
  const running = after(download, started);
  expect(renderTask(running)).toMatchObject({ path: "isos/a.iso", peer: "http://files.example/a.iso?…" });
  const over = step(running, { is: "done", bytes: 1 }, 2000);
  expect(JSON.stringify([renderTask(running), over])).not.toContain("secret");
});

test("the end of a task is final: later reports change nothing", () => {
  for (const end of [
    { is: "done", bytes: 1 },
    { is: "failed", code: "x", message: "no" },
    { is: "cancelled" },
  ] as const) {
    const over = after(download, started, end);
    expect(isOver(over)).toBe(true);
    for (const event of [started, progress, { is: "died", how: "SIGKILL" }, { is: "cancelled" }] as const) {
      expect(step(over, event, 9999)).toBe(over);
    }
  }
});

test("retries a process that exits without a report three times, with backoff", () => {
  const died: TaskEvent = { is: "died", how: "SIGKILL" };
  const waits: (number | undefined)[] = [];
  let task = newTask(id, download, 0);
  for (let at = 0; at < 3; at += 1) {
    task = step(step(task, started, 1), died, 2);
    waits.push(task.state.status === "Pending" ? task.state.waitMs : undefined);
  }
  expect(waits).toEqual([1000, 4000, 16_000]);
  task = step(step(task, started, 3), died, 4);
  expect(task.state).toMatchObject({ status: "Failed", endedAt: 4 });
  expect(detailsOf(task.state)).toBe("the transfer's process ended 4 times, at last with SIGKILL");
});

test("the next agent resumes a download where it stopped", () => {
  const resume = { bytes: 7, etag: '"v1"', total: 10 };
  const cut = after(download, started, { is: "resumable", resume }, { is: "reopened" });
  expect(cut).toMatchObject({ state: { status: "Pending", deaths: 0 }, resume });
  expect(step(cut, started, 5).state).toMatchObject({ status: "Running", bytes: 7, total: 10 });
});

test("and reports why it cannot resume others", () => {
  expect(detailsOf(after(upload, started, { is: "reopened" }).state)).toBe(
    "interrupted: the agent ended, and an upload by HTTP cannot be resumed",
  );
  expect(after(upload, { is: "reopened" }).state.status).toBe("Pending");
  expect(after(upload, started, { is: "died", how: "SIGSEGV" }).state.status).toBe("Failed");
  expect(detailsOf(after(deletion, started, { is: "reopened" }).state)).toContain("what is left can be deleted again");
});

test("a deletion counts entries", () => {
  const removing = after(deletion, started, { is: "removed", entries: 1200 });
  expect(detailsOf(removing.state)).toBe("1200 entries removed");
  const done = step(removing, { is: "done", bytes: 0 }, 5);
  expect(detailsOf(done.state)).toBe("1200 entries removed");
});

test("compares paths independent of their spelling, and takes what is written to as the target", () => {
  expect(pathOf(download)).toBe("isos/a.iso");
  expect(pathOf({ action: "S3_DOWNLOAD", uri: "s3://b-one/k", location: "/./x//y" })).toBe("x/y");
  expect(targetOf({ action: "S3_DOWNLOAD", uri: "s3://b-one/k", location: "isos/a.iso" })).toBe(targetOf(download));
  expect(targetOf(upload)).toBe("http://files.example/up");
});
