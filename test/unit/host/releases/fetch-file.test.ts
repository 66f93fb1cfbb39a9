import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostDialler } from "../../../../src/host/net/dial.ts";
import { fetchFile, type FetchFileDeps } from "../../../../src/host/releases/fetch-file.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { besideOf, hostReleaseSource, readWhole } from "../../../../src/host/releases/release-source.ts";
import type { FetchLimits } from "../../../../src/host/releases/retries.ts";
import { testCertificate } from "../../../support/certificates.ts";
import { startConnectProxy } from "../../../support/control-plane/connect-proxy.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

type Answer = (request: IncomingMessage, response: ServerResponse, number: number) => void;

const CONTENT = Buffer.from(Array.from({ length: 200_000 }, (_, at) => (at * 7919) % 251));
const ETAG = '"one"';
const LIMITS: FetchLimits = {
  attempts: 4,
  stallMs: 400,
  minBytesPerSecond: 1,
  rateMs: 60_000,
  maxMs: 30_000,
  firstPauseMs: 1,
  maxPauseMs: 20,
};

interface Rig {
  readonly path: string;
  readonly requests: IncomingMessage["headers"][];
  readonly url: string;
  readonly retries: string[];
  readonly fetch: (limits?: Partial<FetchLimits>, signal?: AbortSignal) => Promise<void>;
}

/** A real server, and the client that fetches from it. */
async function rig(answer: Answer, content: Buffer = CONTENT): Promise<Rig> {
  const requests: IncomingMessage["headers"][] = [];
  const server = createServer((request, response) => {
    requests.push(request.headers);
    response.on("error", () => undefined);
    answer(request, response, requests.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const path = join(tempDir(), "part");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/holdfast.tar`;
  const clock = systemClock();
  const retries: string[] = [];
  const deps: FetchFileDeps = {
    clock,
    files: hostFiles(),
    source: hostReleaseSource({
      dialler: hostDialler(clock, { noProxy: [] }),
      clock,
      controlPlane: undefined,
      headMs: 400,
    }),
    random: () => 0,
    onRetry: (error) => retries.push("code" in error ? String(error.code) : error.message),
  };
  const sha256 = createHash("sha256").update(content).digest("hex");
  const wanted = { address: url, path, size: content.length, sha256 };
  return {
    path,
    requests,
    url,
    retries,
    fetch: (limits = {}, signal = AbortSignal.timeout(30_000)) =>
      fetchFile(wanted, { ...deps, limits: { ...LIMITS, ...limits } }, signal),
  };
}

/** A correct server: sends all, or the requested rest. */
const serve: Answer = (request, response) => {
  const start = startOf(request);
  const common = { etag: ETAG, "content-length": CONTENT.length - start };
  if (start === 0) response.writeHead(200, common);
  else
    response.writeHead(206, { ...common, "content-range": `bytes ${start}-${CONTENT.length - 1}/${CONTENT.length}` });
  response.end(CONTENT.subarray(start));
};
const startOf = ({ headers }: IncomingMessage): number => Number(/^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1] ?? 0);

/** Sends a number of bytes and then runs `next`. */
const first =
  (bytes: number, then: (response: ServerResponse) => void): Answer =>
  (_, response) => {
    response.writeHead(200, { etag: ETAG, "content-length": CONTENT.length });
    response.write(CONTENT.subarray(0, bytes), () => then(response));
  };
const cut = (response: ServerResponse): void => void response.socket?.end();
/** Sends a number of bytes, and disconnects once they are on disk: data in a reader's buffers is lost with the connection. */
const breaking =
  (own: () => Rig, bytes: number): Answer =>
  (...about) =>
    first(bytes, (response) => {
      const isThere = (): boolean => existsSync(own().path) && statSync(own().path).size === bytes;
      void waitFor("what was sent is on disk", isThere).then(() => cut(response));
    })(...about);
const isWhole = ({ path }: Rig): boolean => readFileSync(path).equals(CONTENT);

test("a file is fetched completely", async () => {
  const { path, fetch, requests } = await rig(serve);
  await fetch();
  expect(readFileSync(path).equals(CONTENT)).toBe(true);
  expect(requests).toMatchObject([{ "accept-encoding": "identity" }]);
});

test("does not fetch an existing file again", async () => {
  const own = await rig(serve);
  await own.fetch();
  await own.fetch();
  expect(own.requests).toHaveLength(1);
});

test("continues a broken connection at its end, if it is the same file", async () => {
  const own: Rig = await rig((request, response, number) =>
    (number === 1 ? breaking(() => own, 50_000) : serve)(request, response, number),
  );
  await own.fetch();
  expect(isWhole(own)).toBe(true);
  expect(own.retries).toEqual(["cut-off"]);
  expect(own.requests[1]?.["if-range"]).toBe(ETAG);
  expect(own.requests[1]?.range).toBe("bytes=50000-");
});

test("another process continues a partial file", async () => {
  const own = await rig((request, response, number) =>
    (number === 1 ? first(50_000, () => undefined) : serve)(request, response, number),
  );
  const ending = new AbortController();
  const ended = own.fetch({ stallMs: 30_000 }, ending.signal);
  await waitFor("some of it is there", () => existsSync(own.path) && statSync(own.path).size === 50_000);
  ending.abort(new Error("killed"));
  await expect(ended).rejects.toThrow("killed");
  await own.fetch();
  expect(own.requests[1]?.range).toBe("bytes=50000-");
  expect(isWhole(own)).toBe(true);
});

test("fetches a wrong file again, once", async () => {
  const own = await rig(serve);
  writeFileSync(own.path, Buffer.alloc(1000, 1));
  writeFileSync(`${own.path}.from`, `${ETAG}\n`);
  await own.fetch();
  expect(own.requests.map(({ range }) => range)).toEqual(["bytes=1000-", undefined]);
  expect(isWhole(own)).toBe(true);
});

test("fetches a too long file again", async () => {
  const own = await rig(serve);
  writeFileSync(own.path, Buffer.alloc(CONTENT.length + 1, 1));
  await own.fetch();
  expect(isWhole(own)).toBe(true);
});

test.each<[string, Answer]>([
  ["does not know ranges", (_, response) => response.writeHead(200, { "content-length": CONTENT.length }).end(CONTENT)],
  [
    "has another file meanwhile",
    (_, response) => response.writeHead(200, { etag: '"two"', "content-length": CONTENT.length }).end(CONTENT),
  ],
])("a server that %s gives all of it", async (_name, answer) => {
  const own: Rig = await rig((request, response, number) =>
    (number === 1 ? breaking(() => own, 50_000) : answer)(request, response, number),
  );
  await own.fetch();
  expect(isWhole(own)).toBe(true);
});

test.each<[string, Answer]>([
  [
    "another range",
    (_, response) =>
      response
        .writeHead(206, { "content-range": `bytes 0-9/${CONTENT.length}`, "content-length": 10 })
        .end("0123456789"),
  ],
  ["no range", (_, response) => response.writeHead(206, { "content-length": 10 }).end("0123456789")],
  ["that there is none", (_, response) => response.writeHead(416).end()],
])("a server that answers a range with %s is asked for all", async (_name, answer) => {
  const own: Rig = await rig((request, response, number) => {
    if (number === 1) return breaking(() => own, 50_000)(request, response, number);
    return (request.headers.range === undefined ? serve : answer)(request, response, number);
  });
  await own.fetch();
  expect(own.retries).toEqual(["cut-off", "bad-range"]);
  expect(isWhole(own)).toBe(true);
});

test.each<[string, string, Answer]>([
  ["stands still", "stalled", first(10, () => undefined)],
  ["never answers", "stalled", () => undefined],
  ["closes at once", "cut-off", (_, response) => response.destroy()],
  ["ends early", "cut-off", first(10, cut)],
  ["is overloaded", "busy", (_, response) => response.writeHead(503, { "retry-after": "1" }).end()],
  ["speaks something else", "bad-answer", (_, response) => response.socket?.end("SSH-2.0-OpenSSH_9.6\r\n")],
])("gives up a server that %s after some attempts: %s", async (_name, code, answer) => {
  const own = await rig(answer);
  await expect(own.fetch({ attempts: 2, maxPauseMs: 1 })).rejects.toMatchObject({ code });
  expect(own.requests).toHaveLength(code === "bad-answer" ? 1 : 2);
});

/** Sends a piece now and then, indefinitely. */
const drip =
  (bytes: number, everyMs: number): Answer =>
  (_, response) => {
    response.writeHead(200, { etag: ETAG, "content-length": CONTENT.length });
    const timer = setInterval(() => response.write(CONTENT.subarray(0, bytes)), everyMs);
    response.once("close", () => clearInterval(timer));
  };

test("a byte now and then is too slow", async () => {
  const own = await rig(drip(1, 20));
  const fetching = own.fetch({ attempts: 1, minBytesPerSecond: 10_000, rateMs: 300 });
  await expect(fetching).rejects.toMatchObject({ code: "too-slow" });
});

test("ends after any number of attempts", async () => {
  const own = await rig(drip(1, 20));
  await expect(own.fetch({ maxMs: 500 })).rejects.toMatchObject({ code: "too-long" });
});

test.each<[string, string, Answer]>([
  [
    "says it is shorter",
    "size-mismatch",
    (_, response) => response.writeHead(200, { "content-length": 10 }).end("0123456789"),
  ],
  [
    "says it is longer",
    "size-mismatch",
    (_, response) =>
      response.writeHead(200, { "content-length": CONTENT.length + 1 }).end(Buffer.concat([CONTENT, Buffer.from("x")])),
  ],
  ["does not say how long it is", "length-unknown", (_, response) => response.writeHead(200).end(CONTENT)],
  [
    "sends chunks for ever",
    "length-unknown",
    (_, response) => {
      const timer = setInterval(() => response.write(CONTENT), 5);
      response.once("close", () => clearInterval(timer));
    },
  ],
  [
    "sends something else as long",
    "hash-mismatch",
    (_, response) => response.writeHead(200, { "content-length": CONTENT.length }).end(Buffer.alloc(CONTENT.length)),
  ],
  ["compresses", "bad-encoding", (_, response) => response.writeHead(200, { "content-encoding": "gzip" }).end("x")],
  ["has none", "refused", (_, response) => response.writeHead(404).end()],
  [
    "redirects in a circle",
    "bad-redirect",
    (_, response) => response.writeHead(302, { location: "/holdfast.tar" }).end(),
  ],
  [
    "redirects to a file",
    "bad-redirect",
    (_, response) => response.writeHead(302, { location: "file:///etc/passwd" }).end(),
  ],
  ["redirects to nowhere", "bad-redirect", (_, response) => response.writeHead(302).end()],
])("does not retry a server that %s: %s", async (_name, code, answer) => {
  const own = await rig(answer);
  await expect(own.fetch()).rejects.toMatchObject({ code });
  expect(own.retries).toEqual([]);
  expect(statSync(own.path).size).toBe(0);
});

test("follows redirects", async () => {
  const own = await rig((request, response, number) => {
    if (number <= 3) return void response.writeHead(307, { location: `/elsewhere/${number}` }).end();
    return serve(request, response, number);
  });
  await own.fetch();
  expect(isWhole(own)).toBe(true);
});

test("retries after temporary errors", async () => {
  const own = await rig((request, response, number) => {
    if (number <= 2) return void response.writeHead(number === 1 ? 503 : 429).end();
    return serve(request, response, number);
  });
  await own.fetch();
  expect(own.retries).toEqual(["busy", "busy"]);
  expect(isWhole(own)).toBe(true);
});

test("trusts a key of the control plane only for the control plane", async () => {
  const certificate = await testCertificate({ hosts: ["other.example.net"], isExpired: true });
  const server = createSecureServer(certificate, (_, response) => response.end("manifest"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const clock = systemClock();
  const read = async (controlPlane: { origin: string; pins: readonly string[] } | undefined): Promise<string> => {
    const source = hostReleaseSource({ dialler: hostDialler(clock, { noProxy: [] }), clock, controlPlane });
    const bytes = await readWhole({ source, clock }, `${origin}/manifest.jws`, 100, AbortSignal.timeout(30_000));
    return Buffer.from(bytes).toString();
  };
  expect(await read({ origin, pins: [certificate.pin] })).toBe("manifest");
  for (const nobody of [undefined, { origin, pins: [] }, { origin: "https://127.0.0.1:1", pins: [certificate.pin] }]) {
    await expect(read(nobody)).rejects.toMatchObject({ code: "tls-untrusted" });
  }
});

test("uses a proxy if the settings name one", async () => {
  const own = await rig(serve);
  const proxy = await startConnectProxy(Number(new URL(own.url).port));
  const clock = systemClock();
  const dialler = hostDialler(clock, { http: new URL(proxy.url), noProxy: [] });
  const source = hostReleaseSource({ dialler, clock, controlPlane: undefined });
  const from = "http://releases.example.net/manifest.jws";
  const bytes = await readWhole({ source, clock }, from, CONTENT.length, AbortSignal.timeout(30_000));
  expect(CONTENT.equals(bytes)).toBe(true);
  expect(proxy.requests).toEqual(["releases.example.net:80"]);
});

test("a package lies beside its manifest", () => {
  expect(besideOf("/media/usb/manifest.jws", "a.tar")).toBe("/media/usb/a.tar");
  expect(besideOf("https://cp.example.net/releases/manifest.jws?x=1", "a.tar")).toBe(
    "https://cp.example.net/releases/a.tar",
  );
  for (const [address, name] of [
    ["/media/usb/manifest.jws", "../a.tar"],
    ["ftp://cp.example.net/manifest.jws", "a.tar"],
    ["https://me:secret@cp.example.net/manifest.jws", "a.tar"],
    ["manifest.jws", "a.tar"],
  ] as const) {
    expect(() => besideOf(address, name)).toThrow(expect.objectContaining({ code: "bad-address" }));
  }
});
