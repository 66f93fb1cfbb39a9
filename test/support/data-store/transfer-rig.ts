import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import { openStore } from "../../../src/host/data-store/open-store.ts";
import { guardedConnector, type GuardedConnectorOptions } from "../../../src/host/net/guarded-connect.ts";
import type { Resume, TransferEvent, TransferLimits } from "../../../src/protocol/triggers/transfer.ts";
import { failureOf } from "../../../src/transfer/attempts.ts";
import { httpDownload, type HttpDownload } from "../../../src/transfer/http-download.ts";
import { httpUpload, type HttpUpload } from "../../../src/transfer/http-upload.ts";
import { bundled } from "../bundled.ts";
import { compileCache } from "../compile-cache.ts";
import { waitFor } from "../wait-for.ts";
import type { TransferDeps } from "../../../src/transfer/deps.ts";

/** A request as received by a server: its head, and the body so far. */
export interface Asked {
  readonly line: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly socket: Socket;
  body: Buffer;
}

export interface RawServer {
  readonly port: number;
  readonly url: string;
  readonly requested: readonly Asked[];
}

/** A server whose every byte the test writes: `answer` is called with each request, numbered from 0. */
export async function rawServer(
  answer: (requested: Asked, number: number) => void,
  host = "127.0.0.1",
): Promise<RawServer> {
  const requested: Asked[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    let head = Buffer.alloc(0);
    let request: Asked | undefined;
    socket.on("error", () => undefined);
    onTestFinished(() => void socket.destroy());
    socket.on("data", (bytes: Buffer) => {
      if (request !== undefined) {
        request.body = Buffer.concat([request.body, bytes]);
        return;
      }
      head = Buffer.concat([head, bytes]);
      const end = head.indexOf("\r\n\r\n");
      if (end === -1) return;
      const [line = "", ...lines] = head.subarray(0, end).toString("latin1").split("\r\n");
      const headers = Object.fromEntries(
        lines.map((text) => [text.slice(0, text.indexOf(":")).toLowerCase(), text.slice(text.indexOf(":") + 1).trim()]),
      );
      request = { line, headers, socket, body: head.subarray(end + 4) };
      requested.push(request);
      answer(request, requested.length - 1);
    });
  });
  server.listen(0, host);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://${host.includes(":") ? `[${host}]` : host}:${port}/file?token=secret`, requested };
}

/** Writes a complete answer and closes the connection. */
export function reply(
  { socket }: Asked,
  status: string,
  headers: Readonly<Record<string, string | number>>,
  body: string | Buffer = "",
): void {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`HTTP/1.1 ${status}\r\n${lines.join("")}\r\n`);
  socket.end(body);
}

export const LIMITS: TransferLimits = {
  maxBytes: 1e12,
  reserveRatio: 0.000_001,
  minBytesPerSecond: 0,
  maxMs: 600_000,
  connectMs: 30_000,
  stallMs: 60_000,
  maxRedirects: 5,
  concurrency: 1,
};

export const LOOPBACK = ["127.0.0.0/8", "::1/128"];

export interface JobWishes extends Partial<Pick<HttpDownload, "id" | "hash" | "algo" | "proxies">> {
  readonly limits?: Partial<TransferLimits>;
  readonly allow?: readonly string[];
  readonly resume?: Resume;
}

export function downloadJob(root: string, uri: string, wishes: JobWishes = {}): HttpDownload {
  const { limits, allow = LOOPBACK, ...rest } = wishes;
  return {
    kind: "http-download",
    id: randomUUID(),
    root,
    parts: ["images", "file.img"],
    policy: { allow: [...allow] },
    limits: { ...LIMITS, ...limits },
    proxies: { noProxy: [] },
    uri,
    ...rest,
  };
}

export function uploadJob(root: string, uri: string, name: string, isForm = false, wishes: JobWishes = {}): HttpUpload {
  const { hash: _hash, algo: _algo, kind: _kind, ...common } = downloadJob(root, uri, wishes);
  return { ...common, kind: "http-upload", parts: [name], multipart: isForm };
}

export interface Carried {
  readonly events: readonly TransferEvent[];
  /** The last event. */
  readonly end: TransferEvent;
  readonly pauses: readonly number[];
}

export type CarryWishes = Partial<TransferDeps> &
  Partial<Pick<GuardedConnectorOptions, "resolve" | "ownAddresses">> & { readonly signal?: AbortSignal };

/** Runs a job in this process, with the machine's clock, which does not wait between attempts. */
export async function runJob(job: HttpDownload | HttpUpload, wishes: CarryWishes = {}): Promise<Carried> {
  const events: TransferEvent[] = [];
  const pauses: number[] = [];
  const clock = { ...systemClock(), sleep: async (ms: number) => void pauses.push(ms) };
  const store = openStore(job.root);
  const { http } = job.proxies;
  const { resolve, ownAddresses = () => [], signal = new AbortController().signal } = wishes;
  const deps: TransferDeps = {
    clock,
    store,
    connector: guardedConnector({
      clock: systemClock(),
      policy: job.policy,
      proxies: { noProxy: [], ...(http === undefined ? {} : { http: new URL(http), https: new URL(http) }) },
      connectMs: job.limits.connectMs,
      ownAddresses,
      ...(resolve === undefined ? {} : { resolve }),
    }),
    emit: (event) => void events.push(event),
    mayPublish: () => Promise.resolve(),
    random: () => 0,
    ...wishes,
  };
  try {
    const ended = job.kind === "http-download" ? httpDownload(job, deps, signal) : httpUpload(job, deps, signal);
    events.push(await ended.catch(failureOf));
  } finally {
    store.close();
  }
  return { events, end: events.at(-1) ?? { is: "failed", code: "none", message: "" }, pauses };
}

/** Names of the files below a directory. */
export const filesIn = (directory: string): readonly string[] =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name);

export interface TransferProcess {
  readonly child: ChildProcess;
  readonly events: readonly TransferEvent[];
  readonly exit: Promise<number | null>;
  say(line: string): void;
  leave(): void;
  until(what: string, found: (event: TransferEvent) => boolean): Promise<TransferEvent>;
}

const PROGRAM = fileURLToPath(new URL("transfer-program.ts", import.meta.url));

/** Starts `holdfast transfer` as the agent does, with a job as its first line. `shell` is a command line that ends in "$@". */
export function startTransfer(
  job: unknown,
  shell = 'exec "$@"',
  env: Readonly<Record<string, string>> = {},
  publishes = true,
): TransferProcess {
  const program = [process.execPath, "--disable-warning=ExperimentalWarning", bundled(PROGRAM), "transfer"];
  const { PATH = "" } = process.env;
  const child = spawn("sh", ["-c", shell, "sh", ...program], {
    env: { PATH, ...compileCache(), ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const events: TransferEvent[] = [];
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    const lines = (text + piece).split("\n");
    text = lines.pop() ?? "";
    const reported = lines.map((line) => JSON.parse(line) as TransferEvent);
    events.push(...reported);
    if (publishes && reported.some(({ is }) => is === "whole")) child.stdin.write('{"is":"publish"}\n');
  });
  child.stdin.on("error", () => undefined);
  child.stdin.write(`${typeof job === "string" ? job : JSON.stringify(job)}\n`);
  const exit = new Promise<number | null>((resolve) => child.once("close", resolve));
  return {
    child,
    events,
    exit,
    say: (line) => void child.stdin.write(`${line}\n`),
    leave: () => void child.stdin.end(),
    until: (what, found) => waitFor(what, () => events.find(found)),
  };
}
