import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type SpeedTestTokens, SPEED_TEST_PATH } from "./keys/speed-test-tokens.ts";
import type { NodeStore } from "../nodes/store.ts";
import { answerError, answerJson, pathOf } from "./http-io.ts";

type Tables = { readonly nodes: Pick<NodeStore, "label"> };

const SPEED_TEST_MAX_BYTES = 100_000_000;
const SPEED_TEST_CONNECTIONS = 4;
const DEADLINE_MS = 120_000;

// Random, so that it cannot be compressed on the path.
const CHUNK = randomBytes(64 * 1024);

/** Sends and receives bytes for bandwidth tests, over at most 4 connections per node. */
export class SpeedTest {
  readonly #store: Tables;
  readonly #tokens: SpeedTestTokens;
  readonly #running = new Map<string, number>();

  constructor(store: Tables, tokens: SpeedTestTokens) {
    this.#store = store;
    this.#tokens = tokens;
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const uid = this.#tokens.uidOf(pathOf(request).slice(SPEED_TEST_PATH.length + 1));
    if (uid === undefined || (await this.#store.nodes.label(uid)) === undefined)
      return answerError(response, 404, { code: "not-found", message: "no such speed test" });
    const running = this.#running.get(uid) ?? 0;
    if (running >= SPEED_TEST_CONNECTIONS) {
      const message = `${SPEED_TEST_CONNECTIONS} connections of this node are measuring already; try again later`;
      return answerError(response, 429, { code: "busy", message }, { "retry-after": "5" });
    }
    this.#running.set(uid, running + 1);
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    try {
      if (request.method === "GET") await send(request, response, deadline);
      else if (request.method === "POST") await take(request, response, deadline);
      else answerError(response, 405, { code: "invalid-body", message: "GET or POST" }, { allow: "GET, POST" });
    } finally {
      const left = (this.#running.get(uid) ?? 1) - 1;
      if (left === 0) this.#running.delete(uid);
      else this.#running.set(uid, left);
    }
  }
}

async function send(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
  const text = new URL(request.url ?? "/", "http://localhost").searchParams.get("bytes") ?? "";
  const bytes = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (bytes < 1 || bytes > SPEED_TEST_MAX_BYTES) {
    const message = `bytes: must be 1 to ${SPEED_TEST_MAX_BYTES}`;
    return answerError(response, 422, { code: "invalid-body", message, details: { field: "bytes" } });
  }
  const headers = { "content-type": "application/octet-stream", "cache-control": "no-store" };
  response.writeHead(200, { ...headers, "content-length": bytes });
  await pipeline(Readable.from(chunks(bytes), { objectMode: false }), response, { signal });
}

function* chunks(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.byteLength)
    yield left < CHUNK.byteLength ? CHUNK.subarray(0, left) : CHUNK;
}

async function take(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
  const cut = (): void => void request.destroy();
  signal.addEventListener("abort", cut, { once: true });
  let bytes = 0;
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      if (Buffer.isBuffer(chunk)) bytes += chunk.byteLength;
      if (bytes > SPEED_TEST_MAX_BYTES) break;
    }
  } finally {
    signal.removeEventListener("abort", cut);
  }
  if (bytes > SPEED_TEST_MAX_BYTES) {
    const message = `more than ${SPEED_TEST_MAX_BYTES} bytes`;
    return answerError(response, 413, { code: "too-large", message }, { connection: "close" });
  }
  answerJson(response, 200, { bytes });
}
