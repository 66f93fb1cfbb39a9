import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/** Treatment of a request by the proxy. */
export type EngineFault =
  | { readonly kind: "pass" }
  /** Answers instead of the engine. */
  | { readonly kind: "answer"; readonly status: number; readonly body?: string }
  /** Never answers, without asking the engine. */
  | { readonly kind: "hang" }
  /** The engine acts, and its answer is dropped. */
  | { readonly kind: "withhold" }
  /** Passes the head of the answer and a number of bytes of its body, then disconnects. */
  | { readonly kind: "cut"; readonly afterBytes: number }
  /** Passes the head of the answer and no byte of its body; also for answers in progress. */
  | { readonly kind: "silence" };

export interface ProxiedRequest {
  readonly method: string;
  /** Without the version, with the query. */
  readonly path: string;
}

/** A proxy before a real engine, on a socket of its own; counts requests and injects faults. */
export interface EngineProxy {
  readonly socketPath: string;
  /** Every request so far, oldest first. */
  readonly requests: readonly ProxiedRequest[];
  /** Number of dropped answers. */
  readonly withheld: number;
  /** Number of open connections. */
  readonly openConnections: number;
  /** Returns the number of requests with the method and a matching path since `forget`. */
  count(method: string, path: RegExp): number;
  forget(): void;
  /** Sets the fault for all requests, or for those that match; the last call wins. */
  set(fault: EngineFault, matches?: (request: ProxiedRequest) => boolean): void;
  /** Removes all faults. */
  heal(): void;
  /** Closes open connections. */
  cut(): void;
  /** Stops listening and closes open connections, until `listen`. */
  close(): Promise<void>;
  listen(): Promise<void>;
}

/** Starts a proxy from one Unix socket to another. The caller closes it. */
export async function startEngineProxy(socketPath: string, target: string): Promise<EngineProxy> {
  const requests: ProxiedRequest[] = [];
  const open = new Set<Socket>();
  const faults: { readonly fault: EngineFault; readonly matches: (request: ProxiedRequest) => boolean }[] = [];
  let server: Server | undefined;
  let withheld = 0;

  const faultFor = (requested: ProxiedRequest): EngineFault =>
    faults.find(({ matches }) => matches(requested))?.fault ?? { kind: "pass" };
  const note = (incoming: IncomingMessage): ProxiedRequest => {
    const requested = { method: incoming.method ?? "", path: (incoming.url ?? "").replace(/^\/v\d+\.\d+(?=\/)/, "") };
    requests.push(requested);
    return requested;
  };

  const serve = (incoming: IncomingMessage, answer: ServerResponse): void => {
    const requested = note(incoming);
    const fault = faultFor(requested);
    if (fault.kind === "hang") return void incoming.resume();
    if (fault.kind === "answer") {
      incoming.resume();
      answer.writeHead(fault.status, { "content-type": "application/json" }).end(fault.body ?? "");
      return undefined;
    }
    const { method, url: path, headers } = incoming;
    const outgoing = request({ socketPath: target, method, path, headers, agent: false }, (response) => {
      if (fault.kind === "withhold") {
        withheld += 1;
        return void response.resume();
      }
      answer.writeHead(response.statusCode ?? 502, response.headers);
      answer.flushHeaders();
      let delivered = 0;
      response.on("data", (chunk: Buffer) => {
        const now = faultFor(requested);
        if (now.kind === "silence") return;
        if (now.kind !== "cut") {
          if (!answer.write(chunk)) response.pause();
          return;
        }
        const part = chunk.subarray(0, Math.max(0, now.afterBytes - delivered));
        delivered += part.length;
        answer.write(part, () => (delivered >= now.afterBytes ? incoming.socket.destroy() : undefined));
      });
      answer.on("drain", () => response.resume());
      response.once("end", () => answer.end());
      response.once("error", () => incoming.socket.destroy());
    });
    // A failure after the answer does not affect the next request on the same connection.
    outgoing.once("error", () => (answer.writableEnded ? undefined : incoming.socket.destroy()));
    answer.once("close", () => outgoing.destroy());
    // In one write with the head, as clients of an engine send it: the engine may disconnect between two.
    const body: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => void body.push(chunk));
    incoming.once("end", () => outgoing.end(Buffer.concat(body)));
    return undefined;
  };

  /** After an upgrade, bytes pass in both directions, half-closes included. */
  const join = (incoming: IncomingMessage, near: Duplex, head: Buffer): void => {
    const fault = faultFor(note(incoming));
    near.on("error", () => undefined);
    if (fault.kind === "hang") return;
    if (fault.kind === "answer") {
      const body = fault.body ?? "";
      near.end(`HTTP/1.1 ${fault.status} Answered\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      return;
    }
    const far = connect({ path: target, allowHalfOpen: true });
    const fields = incoming.rawHeaders.flatMap((name, at, all) => (at % 2 === 0 ? [`${name}: ${all[at + 1]}`] : []));
    far.write([`${incoming.method} ${incoming.url} HTTP/1.1`, ...fields, "", ""].join("\r\n"));
    // The body of the request itself precedes the upgraded stream.
    incoming.on("data", (chunk: Buffer) => void far.write(chunk));
    far.write(head);
    far.on("error", () => near.destroy());
    far.once("close", () => near.destroy());
    near.once("close", () => far.destroy());
    near.pipe(far);
    far.pipe(near);
  };

  const proxy: EngineProxy = {
    socketPath,
    requests,
    get withheld() {
      return withheld;
    },
    get openConnections() {
      return open.size;
    },
    count: (method, path) => requests.filter((one) => one.method === method && path.test(one.path)).length,
    forget: () => void requests.splice(0),
    set: (fault, matches = () => true) => void faults.unshift({ fault, matches }),
    heal: () => void faults.splice(0),
    cut() {
      for (const socket of open) socket.destroy();
    },
    async close() {
      const closing = server;
      server = undefined;
      if (closing === undefined) return;
      const closed = new Promise<void>((resolve) => closing.close(() => resolve()));
      proxy.cut();
      await closed;
    },
    async listen() {
      const created = createServer(serve);
      // Keeps idle connections, as the engine does.
      created.keepAliveTimeout = 0;
      created.on("upgrade", join);
      created.on("connection", (socket) => {
        open.add(socket);
        socket.once("close", () => open.delete(socket));
      });
      await new Promise<void>((resolve, reject) => {
        created.once("error", reject).listen(socketPath, resolve);
      });
      server = created;
    },
  };
  await proxy.listen();
  return proxy;
}
