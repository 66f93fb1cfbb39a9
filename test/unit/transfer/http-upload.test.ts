import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { tempDir } from "../../support/temp-dir.ts";
import {
  carryOut,
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
  return { root, server, ...(await carryOut(uploadJob(root, server.url, name, isForm, rest))) };
}

const goOn = ({ socket }: Asked): void => void socket.write("HTTP/1.1 100 Continue\r\n\r\n");

/** Reads the body, and answers at its end. */
function accept(asked: Asked, status = "201 Created"): void {
  goOn(asked);
  const length = Number(asked.headers["content-length"]);
  const look = (): void => {
    if (asked.body.length >= length) reply(asked, status, { "content-length": 0 });
    else asked.socket.once("data", () => setImmediate(look));
  };
  look();
}

test("sends the file unchanged, with its length", async () => {
  const { server, end } = await upload((asked) => accept(asked));
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.asked[0]?.line).toBe("POST /file?token=secret HTTP/1.1");
  expect(server.asked[0]?.headers).toMatchObject({
    "content-length": String(BODY.length),
    "content-type": "application/octet-stream",
  });
  expect(server.asked[0]?.body.equals(BODY)).toBe(true);
});

test("sends an empty file", async () => {
  const { server, end } = await upload((asked) => accept(asked), { body: Buffer.alloc(0) });
  expect(end).toEqual({ is: "done", bytes: 0 });
  expect(server.asked[0]?.headers).toMatchObject({ "content-length": "0" });
});

test("sends the file as the part of a form, its name escaped", async () => {
  const { server, end } = await upload((asked) => accept(asked), { isForm: true, name: 'a"b\r\nc ü.img' });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  const [asked] = server.asked;
  const { "content-length": length, "content-type": type = "" } = asked?.headers ?? {};
  expect(asked?.body.length).toBe(Number(length));
  const form = await new Response(asked?.body, { headers: { "content-type": type } }).formData();
  const file = form.get("file");
  expect(asked?.body.toString("utf8", 0, 200)).toContain('filename="a%22b%0D%0Ac ü.img"\r\n');
  expect(Buffer.from(await (file as File).arrayBuffer()).equals(BODY)).toBe(true);
  expect([...form.keys()]).toEqual(["file"]);
});

test("sends everything to a server without 100-continue all the same", async () => {
  const { end } = await upload((asked) => {
    asked.socket.on("data", () => {
      if (asked.body.length === Number(asked.headers["content-length"]))
        reply(asked, "200 OK", { "content-length": 0 });
    });
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
});

test("retries what fails before the first byte", async () => {
  const { server, end, pauses } = await upload((asked, number) => {
    if (number === 0) asked.socket.destroy();
    else if (number === 1) reply(asked, "503 Busy", { "retry-after": 5, "content-length": 0 });
    else accept(asked);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(pauses).toEqual([1000, 5000]);
  expect(server.asked.length).toBe(3);
});

test.each([
  ["the connection is cut", (asked: Asked) => void asked.socket.destroy(), "cut-off"],
  ["the server is busy", (asked: Asked) => reply(asked, "503 Busy", { "content-length": 0 }), "busy"],
  ["it is redirected", (asked: Asked) => reply(asked, "307 There", { location: "/other" }), "bad-redirect"],
])("does not retry after the first byte when %s", async (_what, act, code) => {
  const { server, end } = await upload((asked) => {
    goOn(asked);
    asked.socket.once("data", () => act(asked));
  });
  expect(end).toMatchObject({ is: "failed", code });
  expect(server.asked.length).toBe(1);
});

test("follows a redirect that keeps the method before the first byte", async () => {
  const { server, end } = await upload((asked, number) => {
    if (number === 0) reply(asked, "308 Moved", { location: "/other", "content-length": 0 });
    else accept(asked);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.asked.map(({ line }) => line)).toEqual(["POST /file?token=secret HTTP/1.1", "POST /other HTTP/1.1"]);
  expect(server.asked[0]?.body.length).toBe(0);
});

test.each([
  ["302 Found", "/other", "bad-redirect"],
  ["307 There", "http://169.254.169.254/", "forbidden-address"],
  ["307 There", "ftp://127.0.0.1/", "bad-redirect"],
])("refuses a redirect by %s to %s", async (status, location, code) => {
  const { end, server } = await upload((asked) => reply(asked, status, { location, "content-length": 0 }));
  expect(end).toMatchObject({ is: "failed", code });
  expect(server.asked.length).toBe(1);
});

test("sends without Expect to a server that does not support it", async () => {
  const { server, end } = await upload((asked, number) => {
    if (number === 0) reply(asked, "417 Expectation Failed", { "content-length": 0 });
    else accept(asked);
  });
  expect(end).toEqual({ is: "done", bytes: BODY.length });
  expect(server.asked[1]?.headers).not.toHaveProperty("expect");
});

test("a refusal names who refused, without what could be a credential", async () => {
  const { end } = await upload((asked) => reply(asked, "403 Forbidden", { "content-length": 0 }));
  expect(end).toMatchObject({
    is: "failed",
    code: "refused",
    message: expect.stringMatching(/\/file\?… answered 403$/) as string,
  });
});

test("gives up a server that accepts the file and never answers", async () => {
  const { end, server } = await upload((asked) => goOn(asked), { limits: { stallMs: 300 } });
  expect(end).toMatchObject({ is: "failed", code: "stalled" });
  expect(server.asked.length).toBe(1);
});

test("stops sending a file that changes in length", async () => {
  const root = tempDir();
  const path = join(root, "disk.img");
  writeFileSync(path, BODY);
  const server = await rawServer((asked) => {
    truncateSync(path, 1000);
    goOn(asked);
  });
  const { end } = await carryOut(uploadJob(root, server.url, "disk.img"));
  expect(end).toMatchObject({ is: "failed", code: "changed" });
  await waitFor(
    "the connection to end",
    () => server.asked[0]?.socket.destroyed || server.asked[0]?.socket.readableEnded,
  );
  expect(server.asked[0]?.body.length).toBeLessThan(BODY.length);
});

test("refuses a missing file and a directory", async () => {
  const root = tempDir();
  const { end } = await carryOut(uploadJob(root, "http://127.0.0.1:9/", "disk.img"));
  expect(end).toMatchObject({ is: "failed", code: "not-found" });
});
