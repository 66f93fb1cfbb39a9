import { expect, test } from "vitest";
import { callLabel } from "../../../../src/controller/triggers/trigger-label.ts";

const ID = "0d1c2b3a-4f5e-4d6c-8b7a-091827364554";

test.each<[body: unknown, label: string]>([
  [undefined, "Data Store: list"],
  [{ filename: "images" }, "Data Store: list images"],
  [{ action: "DELETE", filename: "a" }, "Data Store: delete a"],
  [{ action: "MKDIR", filename: "a" }, "Data Store: make the directory a"],
  [
    {
      action: "HTTP_DOWNLOAD",
      uri: "https://files.example/a?X-Signature=secret#secret",
      filename: "a",
      location: "/isos",
    },
    "Data Store: download https://files.example/a?… to /isos/a",
  ],
  [
    { action: "HTTP_UPLOAD", filePath: "a", uri: "https://files.example/up?token=secret" },
    "Data Store: upload a to https://files.example/up?…",
  ],
  [{ action: "S3_DOWNLOAD", uri: "s3://bucket/k", location: "a" }, "Data Store: download s3://bucket/k to a"],
  [{ action: "S3_UPLOAD", filePath: "a", bucketDest: "s3://bucket/k" }, "Data Store: upload a to s3://bucket/k"],
  [{ action: "TASKS" }, "Data Store: list tasks"],
  [{ action: "CANCEL", id: ID }, `Data Store: cancel the task ${ID}`],
  [{ action: "CLEAR", id: ID }, `Data Store: clear the task ${ID}`],
  [{ action: "IMAGE_INFO", filename: "a" }, "Data Store: inspect the image a"],
  [{ action: "MKDIR", filename: "x".repeat(4000) }, `Data Store: make the directory ${"x".repeat(200)}…`],
  [{ action: "SOMETHING_NEW", uri: "https://files.example/?token=secret" }, "Data Store"],
])("%j is told as %s", (body, label) => {
  expect(callLabel({ event: "datastore-manager", body }, {})).toBe(label);
});

test("other events are told by their names, and a container by its own", () => {
  expect(callLabel({ event: "tg-ping", body: {} }, {})).toBe("Ping");
  expect(callLabel({ event: "web", body: {} }, { commands: [{ id: "1", name: "web" }] })).toBe("web");
});
