// The file server of the demo of the data store: one file whose bytes come slowly enough to be watched.
import { createCipheriv, createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";

const FILE_BYTES = 64 * 1024 * 1024;
const ETAG = '"disk-of-the-demo"';
const TICK_MS = 100;
/** Bytes a second of `/disk.img`, and of `/slow/disk.img` until somebody comes back for the rest of it. */
const PACES: Readonly<Record<string, number>> = { "/disk.img": 8_000_000, "/slow/disk.img": 2_000_000 };

/** The path of the file that takes half a minute. */
export const SLOW = "/slow/disk.img";

/**
 * Serves `/disk.img` and `/slow/disk.img`, which are the same file, its SHA-256 as `/sha256` and what was asked for so far as
 * `/requests`, until it is closed.
 */
export function startFiles(port: number): Promise<Server> {
  // Reproducible, and no two blocks of it alike.
  const file = createCipheriv("aes-128-ctr", Buffer.alloc(16, 1), Buffer.alloc(16)).update(Buffer.alloc(FILE_BYTES));
  const sha256 = createHash("sha256").update(file).digest("hex");
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const [url = ""] = (request.url ?? "").split("?");
    if (url === "/sha256") return response.end(`${sha256}\n`);
    if (url === "/requests") return response.end(`${asked.join("\n")}\n`);
    const pace = PACES[url];
    if (pace === undefined) return response.writeHead(404).end();
    asked.push(`${request.method} ${url} ${request.headers.range ?? "whole"}`);
    return give(file, request, response, pace);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}

/** The whole file at a pace, or what is asked for of it at once (RFC 9110 §14). */
function give(file: Buffer, request: IncomingMessage, response: ServerResponse, pace: number): void {
  const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
  const isRest = from > 0 && from < file.length && request.headers["if-range"] === ETAG;
  const rest = isRest ? file.subarray(from) : file;
  response.writeHead(isRest ? 206 : 200, {
    etag: ETAG,
    "accept-ranges": "bytes",
    "content-length": rest.length,
    ...(isRest ? { "content-range": `bytes ${from}-${file.length - 1}/${file.length}` } : {}),
  });
  if (isRest) return void response.end(rest);
  let given = 0;
  const timer = setInterval(() => {
    if (response.writableNeedDrain) return;
    const to = Math.min(file.length, given + (pace * TICK_MS) / 1000);
    response.write(file.subarray(given, to));
    given = to;
    if (given < file.length) return;
    clearInterval(timer);
    response.end();
  }, TICK_MS);
  return void response.once("close", () => clearInterval(timer));
}
