import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { onTestFinished } from "vitest";

/** A web server with one file at every path, which limits the bytes it sends. */
export interface PacedFiles {
  readonly url: string;
  readonly content: Buffer;
  readonly sha256: string;
  /** The `Range` of each request, in order; undefined for a whole file. */
  readonly ranges: readonly (string | undefined)[];
  /** Bodies of uploads. */
  readonly uploads: readonly Buffer[];
  /** Raises the limit of each answer to this offset in the file; waiting answers continue. */
  allow(bytes: number): void;
}

/** Starts it on 127.0.0.1; it ends with the test. */
export async function startPacedFiles(bytes: number): Promise<PacedFiles> {
  const whole = Buffer.from(Uint8Array.from({ length: bytes }, (_, at) => at * 31 + (at >> 8)));
  const ranges: (string | undefined)[] = [];
  const uploads: Buffer[] = [];
  const waiting = new Set<() => void>();
  let allowed = 0;
  const give = (request: IncomingMessage, response: ServerResponse): void => {
    const range = request.headers.range;
    if (request.method === "GET") ranges.push(range);
    const from = Number(/^bytes=(\d+)-/.exec(range ?? "")?.[1] ?? 0);
    response.writeHead(range === undefined ? 200 : 206, {
      etag: '"v1"',
      "accept-ranges": "bytes",
      "content-length": whole.length - from,
      ...(range === undefined ? {} : { "content-range": `bytes ${from}-${whole.length - 1}/${whole.length}` }),
    });
    if (request.method === "HEAD") return void response.end();
    response.flushHeaders();
    let given = from;
    const goOn = (): void => {
      const to = Math.min(allowed, whole.length);
      if (to > given) response.write(whole.subarray(given, to));
      given = Math.max(given, to);
      if (given === whole.length) {
        waiting.delete(goOn);
        response.end();
      }
    };
    waiting.add(goOn);
    response.once("close", () => waiting.delete(goOn));
    goOn();
  };
  const server = createServer((request, response) => {
    if (request.method !== "POST") return give(request, response);
    buffer(request).then(
      (body) => {
        uploads.push(body);
        response.writeHead(201).end();
      },
      () => undefined,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    content: whole,
    sha256: createHash("sha256").update(whole).digest("hex"),
    ranges,
    uploads,
    allow(bytes) {
      allowed = bytes;
      for (const goOn of waiting) goOn();
    },
  };
}
