import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { tempDir } from "../../support/temp-dir.ts";
import {
  runJob,
  downloadJob,
  filesIn,
  rawServer,
  reply,
  type Asked,
  type JobWishes,
} from "../../support/data-store/transfer-rig.ts";

const BODY = Buffer.from(Array.from({ length: 700_000 }, (_, at) => (at * 31 + (at >> 8)) & 255));
const SHA256 = createHash("sha256").update(BODY).digest("hex");
const failed = (code: string, message: RegExp) => ({
  is: "failed",
  code,
  message: expect.stringMatching(message) as string,
});
const stored = (root: string): Buffer => readFileSync(join(root, "images/file.img"));

async function download(answer: Parameters<typeof rawServer>[0], wishes: JobWishes = {}) {
  const root = tempDir();
  const server = await rawServer(answer);
  return { root, server, ...(await runJob(downloadJob(root, server.url, wishes))) };
}

describe("a download", () => {
  test("stores the complete file under its name, and returns its hash", async () => {
    const { root, server, end } = await download(
      (requested) => reply(requested, "200 OK", { "content-length": BODY.length }, BODY),
      { algo: "SHA-256" },
    );
    expect(end).toEqual({ is: "done", bytes: BODY.length, hash: SHA256 });
    expect(stored(root).equals(BODY)).toBe(true);
    expect(filesIn(root)).toEqual(["file.img"]);
    expect(server.requested[0]?.line).toBe("GET /file?token=secret HTTP/1.1");
    expect(server.requested[0]?.headers).toMatchObject({
      host: `127.0.0.1:${server.port}`,
      "accept-encoding": "identity",
    });
  });

  test.each(["MD5", "SHA1", "SHA-256"] as const)("computes %s", async (algo) => {
    const hash = createHash(algo.replace("-", "")).update(BODY).digest("hex").toUpperCase();
    const answer = await download((requested) => reply(requested, "200 OK", {}, BODY), { algo, hash });
    expect(answer.end).toEqual({ is: "done", bytes: BODY.length, hash: hash.toLowerCase() });
  });

  test("with a wrong hash leaves nothing", async () => {
    const { root, end } = await download((requested) => reply(requested, "200 OK", {}, BODY), { hash: "0".repeat(64) });
    expect(end).toEqual(failed("hash-mismatch", new RegExp(SHA256)));
    expect(filesIn(root)).toEqual([]);
  });

  test("reads chunks, in any pieces, with extensions and trailers", async () => {
    const { root, end } = await download(({ socket }) => {
      socket.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chun");
      socket.write("ked\r\n\r\n5;a=b\r\nhello\r");
      setImmediate(() => socket.end("\n1\r\n!\r\n0\r\nx-sum: 1\r\n\r\n"));
    });
    expect(end).toEqual({ is: "done", bytes: 6 });
    expect(stored(root).toString()).toBe("hello!");
  });

  test("accepts an empty file", async () => {
    const { root, end } = await download((requested) => reply(requested, "200 OK", { "content-length": 0 }));
    expect(end).toEqual({ is: "done", bytes: 0 });
    expect(stored(root).length).toBe(0);
  });

  test.each([
    ["a chunk that has no size", "transfer-encoding: chunked\r\n\r\nxyz", "bad-answer"],
    ["a chunk larger than any file", `transfer-encoding: chunked\r\n\r\n${"f".repeat(13)}\r\n`, "bad-answer"],
    ["a chunk longer than it says", "transfer-encoding: chunked\r\n\r\n1\r\nxyz", "bad-answer"],
    ["two lengths", "content-length: 1\r\ncontent-length: 2\r\n\r\nxy", "bad-answer"],
    ["a length beside chunks", "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx", "bad-answer"],
    ["another transfer coding", "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "bad-encoding"],
    ["no HTTP at all", "\u0000\u0001\r\n\r\n", "bad-answer"],
    ["a head without end", `x: ${"y".repeat(40_000)}`, "bad-answer"],
  ])("refuses %s", async (_what, rest, code) => {
    const { root, end, server } = await download(({ socket }) => void socket.write(`HTTP/1.1 200 OK\r\n${rest}`));
    expect(end).toMatchObject({ is: "failed", code });
    expect(server.requested.length).toBe(1);
    expect(filesIn(root)).toEqual([]);
  });

  test("refuses compressed data before a byte of it is stored", async () => {
    const bomb = gzipSync(Buffer.alloc(1_000_000));
    const { root, end } = await download((requested) =>
      reply(requested, "200 OK", { "content-encoding": "gzip", "content-length": bomb.length }, bomb),
    );
    expect(end).toEqual(failed("bad-encoding", /compressed/));
    expect(filesIn(root)).toEqual([]);
  });

  test("of a missing file is not retried, and shows no secret part of its address", async () => {
    const { server, end } = await download((requested) => reply(requested, "404 Not Found", {}));
    expect(end).toEqual(failed("refused", /^http:\/\/127\.0\.0\.1:\d+\/file\?… answered 404$/));
    expect(server.requested.length).toBe(1);
  });

  test("refuses an unrequested part of a file", async () => {
    const { end } = await download((requested) =>
      reply(requested, "206 Partial Content", { "content-range": "bytes 0-1/2", "content-length": 2 }, "ab"),
    );
    expect(end).toEqual(failed("refused", /206/));
  });
});

describe("after a temporary failure", () => {
  test("retries three times, with backoff", async () => {
    const { server, events, end, pauses } = await download((requested) => reply(requested, "503 Unavailable", {}));
    expect(end).toEqual(failed("busy", /503/));
    expect(server.requested.length).toBe(4);
    expect(pauses).toEqual([1000, 2000, 4000]);
    expect(events.slice(0, 3).map(({ is }) => is)).toEqual(["retry", "retry", "retry"]);
  });

  test("waits as long as the server asks, and at most a minute", async () => {
    const { end, pauses } = await download((requested, number) => {
      if (number === 2) reply(requested, "200 OK", { "content-length": 2 }, "ok");
      else reply(requested, number === 0 ? "429 Slow Down" : "408 Timeout", { "retry-after": number === 0 ? 7 : 3600 });
    });
    expect(end).toEqual({ is: "done", bytes: 2 });
    expect(pauses).toEqual([7000, 60_000]);
  });

  test("accepts a body that ends with its connection only by its hash, since it could have been cut off", async () => {
    const answer = (requested: Asked): void => reply(requested, "200 OK", {}, BODY);
    const { root, end } = await download(answer);
    expect(end).toMatchObject({ is: "failed", code: "bad-answer", message: expect.stringContaining("hash") as string });
    expect(filesIn(root)).toEqual([]);
    expect((await download(answer, { hash: SHA256 })).end).toMatchObject({ is: "done", hash: SHA256 });
  });

  test("resumes where it was cut off, when the source is unchanged", async () => {
    const { root, server, end } = await download(
      (requested, number) => {
        const headers = { etag: '"v1"', "accept-ranges": "bytes" };
        if (number === 0) {
          reply(requested, "200 OK", { ...headers, "content-length": BODY.length }, BODY.subarray(0, 300_000));
        } else {
          const from = Number(/bytes=(\d+)-/.exec(requested.headers["range"] ?? "")?.[1]);
          const range = `bytes ${from}-${BODY.length - 1}/${BODY.length}`;
          const rest = BODY.subarray(from);
          reply(
            requested,
            "206 Partial Content",
            { ...headers, "content-range": range, "content-length": rest.length },
            rest,
          );
        }
      },
      { algo: "SHA-256" },
    );
    expect(end).toEqual({ is: "done", bytes: BODY.length, hash: SHA256 });
    expect(server.requested[1]?.headers).toMatchObject({ range: "bytes=300000-", "if-range": '"v1"' });
    expect(stored(root).equals(BODY)).toBe(true);
  });

  test("requests by Last-Modified if there is no strong ETag", async () => {
    const lastModified = "Thu, 01 Jan 2026 00:00:00 GMT";
    const { server, end } = await download((requested, number) => {
      const headers = { etag: 'W/"v1"', "last-modified": lastModified, date: "Thu, 01 Jan 2026 00:01:00 GMT" };
      if (number === 0) reply(requested, "200 OK", { ...headers, "content-length": 4 }, "ab");
      else reply(requested, "206 Partial", { ...headers, "content-range": "bytes 2-3/4", "content-length": 2 }, "cd");
    });
    expect(server.requested[1]?.headers).toMatchObject({ range: "bytes=2-", "if-range": lastModified });
    expect(end).toEqual({ is: "done", bytes: 4 });
  });

  test.each([
    ["nothing says what the source is", {}],
    ["its ETag is weak", { etag: 'W/"v1"' }],
    [
      "it was changed in the second of the answer",
      { date: "Thu, 01 Jan 2026 00:00:00 GMT", "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT" },
    ],
  ])("starts again when %s", async (_what, headers) => {
    const { root, server, end } = await download((requested, number) =>
      reply(requested, "200 OK", { ...headers, "content-length": 4 }, number === 0 ? "ab" : "wxyz"),
    );
    expect(end).toEqual({ is: "done", bytes: 4 });
    expect(server.requested[1]?.headers).not.toHaveProperty("range");
    expect(stored(root).toString()).toBe("wxyz");
  });

  test.each([
    ["all of it comes instead of the rest", "200 OK", { "content-length": 4 }, 2],
    ["there is no such range any more", "416 Range Not Satisfiable", { "content-length": 0 }, 3],
    ["the range is another one", "206 Partial", { "content-range": "bytes 1-3/4", "content-length": 3 }, 3],
    ["the range ends early", "206 Partial", { "content-range": "bytes 2-2/4", "content-length": 1 }, 3],
    ["the range is of a longer file", "206 Partial", { "content-range": "bytes 2-4/5", "content-length": 3 }, 3],
    ["the range is not as long as it says", "206 Partial", { "content-range": "bytes 2-3/4", "content-length": 1 }, 3],
    ["the range is of another version", "206 Partial", { etag: '"v2"', "content-range": "bytes 2-3/4" }, 3],
    ["the range is not told", "206 Partial", { "content-length": 2 }, 3],
  ])("starts again when %s", async (_what, status, headers, requests) => {
    const { root, server, end } = await download((requested, number) => {
      if (number === 0) reply(requested, "200 OK", { etag: '"v1"', "content-length": 4 }, "ab");
      else if (number === 1) reply(requested, status, headers, status.startsWith("200") ? "wxyz" : "");
      else reply(requested, "200 OK", { etag: '"v2"', "content-length": 4 }, "wxyz");
    });
    expect(end).toEqual({ is: "done", bytes: 4 });
    expect(server.requested.length).toBe(requests);
    expect(server.requested[2]?.headers ?? {}).not.toHaveProperty("range");
    expect(stored(root).toString()).toBe("wxyz");
  });

  test("refuses more than was announced", async () => {
    const { root, server, end } = await download((requested) =>
      reply(requested, "200 OK", { etag: '"v1"', "content-length": 4 }, "abcdef"),
    );
    expect(end).toMatchObject({ is: "failed", code: "bad-length" });
    expect(server.requested.map(({ headers }) => headers["range"])).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(filesIn(root)).toEqual([]);
  });

  test("fails when the connection always ends early", async () => {
    const { root, end } = await download((requested) => reply(requested, "200 OK", { "content-length": 4 }, "ab"));
    expect(end).toMatchObject({ is: "failed", code: "cut-off" });
    expect(filesIn(root)).toEqual([]);
  });

  test("fails when chunks end without their last one", async () => {
    const { end } = await download((requested) =>
      reply(requested, "200 OK", { "transfer-encoding": "chunked" }, "2\r\nab\r\n"),
    );
    expect(end).toMatchObject({ is: "failed", code: "cut-off" });
  });
});

describe("redirects", () => {
  const to = (location: string) =>
    download((requested) => reply(requested, "302 Found", { location, "content-length": 0 }));

  test("are followed, relative ones too", async () => {
    const { server, end } = await download((requested, number) => {
      if (number === 0) reply(requested, "307 Over There", { location: "other?x=1#y" });
      else reply(requested, "200 OK", { "content-length": 2 }, "ok");
    });
    expect(end).toEqual({ is: "done", bytes: 2 });
    expect(server.requested[1]?.line).toBe("GET /other?x=1 HTTP/1.1");
  });

  test.each([
    ["to where clouds keep credentials", "http://169.254.169.254/latest", "forbidden-address"],
    ["to it in another spelling", "http://0xa9fea9fe/latest", "forbidden-address"],
    ["to it mapped into IPv6", "http://[::ffff:a9fe:a9fe]/", "forbidden-address"],
    ["to a file", "file:///etc/passwd", "bad-redirect"],
    ["with a user", "http://user:hidden@127.0.0.1/", "bad-redirect"],
    ["to nowhere", "http://", "bad-redirect"],
  ])("%s are refused", async (_what, location, code) => {
    const { end } = await to(location);
    expect(end).toMatchObject({ is: "failed", code });
    expect(end).not.toMatchObject({ message: expect.stringMatching(/secret|hidden/) as string });
  });

  test("are followed five times at most", async () => {
    const { end, server } = await to("/again");
    expect(end).toMatchObject({ is: "failed", code: "bad-redirect" });
    expect(server.requested.length).toBe(6);
  });
});
