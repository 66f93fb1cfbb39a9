import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { tempDir } from "../../support/temp-dir.ts";
import {
  runJob,
  rawServer,
  reply,
  uploadJob,
  type Asked,
  type JobWishes,
} from "../../support/data-store/transfer-rig.ts";
import { waitFor } from "../../support/wait-for.ts";

const BODY = Buffer.from(Array.from({ length: 1_200_000 }, (_, at) => (at * 7 + (at >> 9)) & 255));

interface UploadWishes extends JobWishes {
  readonly name?: string;
  readonly body?: Buffer;
  readonly isForm?: boolean;
}

async function upload(answer: Parameters<typeof rawServer>[0], wishes: UploadWishes = {}) {
  const { name = "disk.img", body = BODY, isForm = false, ...rest } = wishes;
  const root = tempDir();
  writeFileSync(join(root, name), body);
  const server = await rawServer(answer);
  return { root, server, ...(await runJob(uploadJob(root, server.url, name, isForm, rest))) };
}

const goOn = ({ socket }: Asked): void => void socket.write("HTTP/1.1 100 Continue\r\n\r\n");

/** Reads the body, and answers at its end. */
function accept(requested: Asked, status = "201 Created"): void {
  goOn(requested);
  const length = Number(requested.headers["content-length"]);
  const look = (): void => {
    if (requested.body.length >= length) reply(requested, status, { "content-length": 0 });
    else requested.socket.once("data", () => setImmediate(look));
  };
  look();
}

test("sends the file unchanged, with its length", async () => {
  const { server, end } = await upload((requested) => accept(requested));
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.requested[0]?.line).toBe("POST /file?token=secret HTTP/1.1");
  expect(server.requested[0]?.headers).toMatchObject({
    "content-length": String(BODY.length),
    "content-type": "application/octet-stream",
  });
  expect(server.requested[0]?.body.equals(BODY)).toBe(true);
});

test("sends an empty file", async () => {
  const { server, end } = await upload((requested) => accept(requested), { body: Buffer.alloc(0) });
  expect(end).toEqual({ is: "done", bytes: 0 });
  expect(server.requested[0]?.headers).toMatchObject({ "content-length": "0" });
});

test("sends the file as the part of a form, its name escaped", async () => {
  const { server, end } = await upload((requested) => accept(requested), { isForm: true, name: 'a"b\r\nc ü.img' });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  const [requested] = server.requested;
  const { "content-length": length, "content-type": type = "" } = requested?.headers ?? {};
  expect(requested?.body.length).toBe(Number(length));
  const form = await new Response(requested?.body, { headers: { "content-type": type } }).formData();
  const file = form.get("file");
  expect(requested?.body.toString("utf8", 0, 200)).toContain('filename="a%22b%0D%0Ac ü.img"\r\n');
  expect(Buffer.from(await (file as File).arrayBuffer()).equals(BODY)).toBe(true);
  expect([...form.keys()]).toEqual(["file"]);
});

test("sends everything to a server without 100-continue all the same", async () => {
  const { end } = await upload((requested) => {
    requested.socket.on("data", () => {
      if (requested.body.length === Number(requested.headers["content-length"]))
        reply(requested, "200 OK", { "content-length": 0 });
    });
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
});

test("retries what fails before the first byte", async () => {
  const { server, end, pauses } = await upload((requested, number) => {
    if (number === 0) requested.socket.destroy();
    else if (number === 1) reply(requested, "503 Busy", { "retry-after": 5, "content-length": 0 });
    else accept(requested);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(pauses).toEqual([1000, 5000]);
  expect(server.requested.length).toBe(3);
});

test.each([
  ["the connection is cut", (requested: Asked) => void requested.socket.destroy(), "cut-off"],
  ["the server is busy", (requested: Asked) => reply(requested, "503 Busy", { "content-length": 0 }), "busy"],
  ["it is redirected", (requested: Asked) => reply(requested, "307 There", { location: "/other" }), "bad-redirect"],
])("does not retry after the first byte when %s", async (_what, act, code) => {
  const { server, end } = await upload((requested) => {
    goOn(requested);
    requested.socket.once("data", () => act(requested));
  });
  expect(end).toMatchObject({ is: "failed", code });
  expect(server.requested.length).toBe(1);
});

test("follows a redirect that keeps the method before the first byte", async () => {
  const { server, end } = await upload((requested, number) => {
    if (number === 0) reply(requested, "308 Moved", { location: "/other", "content-length": 0 });
    else accept(requested);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.requested.map(({ line }) => line)).toEqual([
    "POST /file?token=secret HTTP/1.1",
    "POST /other HTTP/1.1",
  ]);
  expect(server.requested[0]?.body.length).toBe(0);
});

test.each([
  ["302 Found", "/other", "bad-redirect"],
  ["307 There", "http://169.254.169.254/", "forbidden-address"],
  ["307 There", "ftp://127.0.0.1/", "bad-redirect"],
])("refuses a redirect by %s to %s", async (status, location, code) => {
  const { end, server } = await upload((requested) => reply(requested, status, { location, "content-length": 0 }));
  expect(end).toMatchObject({ is: "failed", code });
  expect(server.requested.length).toBe(1);
});

test("sends without Expect to a server that does not support it", async () => {
  const { server, end } = await upload((requested, number) => {
    if (number === 0) reply(requested, "417 Expectation Failed", { "content-length": 0 });
    else accept(requested);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.requested[1]?.headers).not.toHaveProperty("expect");
});

test("a refusal names who refused, without what could be a credential", async () => {
  const { end } = await upload((requested) => reply(requested, "403 Forbidden", { "content-length": 0 }));
  expect(end).toMatchObject({
    is: "failed",
    code: "refused",
    message: expect.stringMatching(/\/file\?… answered 403$/) as string,
  });
});

test("gives up a server that accepts the file and never answers", async () => {
  const { end, server } = await upload((requested) => goOn(requested), { limits: { stallMs: 300 } });
  expect(end).toMatchObject({ is: "failed", code: "stalled" });
  expect(server.requested.length).toBe(1);
});

test("stops sending a file that changes in length", async () => {
  const root = tempDir();
  const path = join(root, "disk.img");
  writeFileSync(path, BODY);
  const server = await rawServer((requested) => {
    truncateSync(path, 1000);
    goOn(requested);
  });
  const { end } = await runJob(uploadJob(root, server.url, "disk.img"));
  expect(end).toMatchObject({ is: "failed", code: "changed" });
  await waitFor(
    "the connection to end",
    () => server.requested[0]?.socket.destroyed || server.requested[0]?.socket.readableEnded,
  );
  expect(server.requested[0]?.body.length).toBeLessThan(BODY.length);
});

test("refuses a missing file and a directory", async () => {
  const root = tempDir();
  const { end } = await runJob(uploadJob(root, "http://127.0.0.1:9/", "disk.img"));
  expect(end).toMatchObject({ is: "failed", code: "not-found" });
});
