import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import { S3Target } from "../../../src/transfer/s3-client.ts";
import { downloadObject } from "../../../src/transfer/s3-download.ts";
import { S3Http } from "../../../src/transfer/s3-http.ts";
import { credentialsFile } from "../../support/data-store/s3-transfer.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MiB = 1024 * 1024;

/** Starts a store on loopback; returns its port. */
async function store(answer: RequestListener): Promise<number> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

function httpTo(port: number): S3Http {
  const options = { connect: () => Promise.resolve(connect(port, "127.0.0.1")), maxSockets: 1, stallMs: 10_000 };
  const http = new S3Http(options);
  onTestFinished(() => http.destroy());
  return http;
}

const request = { protocol: "http:", hostname: "127.0.0.1", path: "/bucket/key", method: "GET", headers: {} } as const;

/** Sends as long as the peer reads, up to 64 MiB. */
function endless(status: number): RequestListener {
  return (_, response) => {
    response.writeHead(status).on("error", () => undefined);
    let left = 64;
    const more = (): void => {
      while (left > 0) {
        left -= 1;
        if (!response.write(Buffer.alloc(MiB, "A"))) return void response.once("drain", more);
      }
      response.end();
    };
    more();
  };
}

test.each([
  [403, "GetObject"],
  [500, "GetObject"],
  [200, "GetBucketLocation"],
] as const)("limits an answer of status %i to %s", async (status, id) => {
  const port = await store(endless(status));
  const sent = httpTo(port).handle({ ...request, port, query: { "x-id": id } });
  await expect(sent).rejects.toMatchObject({
    code: "s3-failed",
    message: expect.stringContaining("1048576 bytes") as string,
  });
});

test("reads a complete refusal", async () => {
  const port = await store((_, response) => response.writeHead(404).end("<Error><Code>NoSuchKey</Code></Error>"));
  const { response } = await httpTo(port).handle({ ...request, port, query: { "x-id": "GetObject" } });
  expect((await buffer(response.body)).toString()).toBe("<Error><Code>NoSuchKey</Code></Error>");
});

test("an object may be larger than any other answer", async () => {
  const port = await store((_, response) => {
    response.writeHead(200, { "content-length": 3 * MiB, etag: '"a"' }).end(Buffer.alloc(3 * MiB, "A"));
  });
  const { signal } = new AbortController();
  const target = await S3Target.open({
    object: { bucket: "bucket", key: "key" },
    access: {
      endpoint: `http://127.0.0.1:${port}`,
      region: "us-east-1",
      pathStyle: true,
      credentials: credentialsFile(tempDir(), { accessKeyId: "someone", secretAccessKey: "something" }),
    },
    limits: { stallMs: 10_000, concurrency: 1 },
    connect: () => Promise.resolve(connect(port, "127.0.0.1")),
    clock: systemClock(),
    emit: () => undefined,
    random: () => 0,
    signal,
  });
  onTestFinished(() => target.close());
  let bytes = 0;
  const total = await downloadObject({
    target,
    sink: {
      get bytes() {
        return bytes;
      },
      admit: () => Promise.resolve(),
      put: (_, from, to) => void (bytes += to - from),
      settle: () => undefined,
      restart: () => undefined,
    },
    pacer: {
      bytes: 0,
      total: undefined,
      add: () => undefined,
      pieceBytes: (most) => most,
      pause: () => Promise.resolve(),
    },
    resume: undefined,
    onFound: () => undefined,
    signal,
  });
  expect([total, bytes]).toEqual([3 * MiB, 3 * MiB]);
});
