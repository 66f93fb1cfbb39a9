import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Transform } from "node:stream";

/** One request that passed. */
export interface PassedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
}

/** Treatment of a request instead of passing it: an answer with S3's code, a closed connection, or silence. */
export type Fault =
  | { readonly status: number; readonly code: string; readonly headers?: Record<string, string> }
  /** Answers itself. */
  | { readonly status: number; readonly body: string }
  | "cut"
  /** Passes with the first byte of the upload or download changed. */
  | "alter"
  | "hold";

/** A proxy before an object store that records requests and injects the faults that `fault` returns. */
export interface S3Front {
  readonly port: number;
  readonly passed: PassedRequest[];
  /** Called for each request; undefined lets it pass. */
  fault: (request: PassedRequest) => Fault | undefined;
  close(): Promise<void>;
}

/** Starts one on 127.0.0.1 before the store at a port. A cut answer ends after a quarter of a MiB. */
export async function startFront(storePort: number): Promise<S3Front> {
  const passed: PassedRequest[] = [];
  const front = { port: 0, passed, fault: (): Fault | undefined => undefined, close } as S3Front;
  const server = createServer();
  const answer = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const seen = { method: incoming.method ?? "", path: incoming.url ?? "", headers: incoming.headers };
    passed.push(seen);
    const fault = front.fault(seen);
    if (fault === "hold") return;
    if (fault !== undefined && fault !== "cut" && fault !== "alter") {
      incoming.resume();
      const headers = "headers" in fault ? fault.headers : {};
      outgoing.writeHead(fault.status, { "content-type": "application/xml", connection: "close", ...headers });
      const error = "code" in fault ? `<Error><Code>${fault.code}</Code><Message>as told</Message></Error>` : "";
      outgoing.end("body" in fault ? fault.body : `<?xml version="1.0"?>${error}`);
      return;
    }
    if (incoming.headers.expect !== undefined) outgoing.writeContinue();
    const { expect: _, ...headers } = incoming.headers;
    const passing = request(
      { host: "127.0.0.1", port: storePort, method: seen.method, path: seen.path, headers, setHost: false },
      (response) => {
        outgoing.writeHead(response.statusCode ?? 500, response.headers);
        if (fault === "alter" && seen.method === "GET") return void response.pipe(altering()).pipe(outgoing);
        if (fault !== "cut") return void response.pipe(outgoing);
        let sent = 0;
        response.on("data", (piece: Buffer) => {
          outgoing.write(piece);
          sent += piece.length;
          if (sent > 256 * 1024) outgoing.destroy();
        });
        return response.on("end", () => outgoing.destroy());
      },
    );
    passing.on("error", () => outgoing.destroy());
    outgoing.once("close", () => passing.destroy());
    if (fault === "alter" && seen.method === "PUT") incoming.pipe(altering()).pipe(passing);
    else incoming.pipe(passing);
  };
  server.on("request", answer).on("checkContinue", answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return Object.assign(front, { port: (server.address() as AddressInfo).port });

  function close(): Promise<void> {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  }
}

/** Passes bytes with the first one changed. */
function altering(): Transform {
  let isFirst = true;
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      const altered = Buffer.from(piece);
      if (isFirst && altered.length > 0) altered[0] = (altered[0] ?? 0) ^ 0xff;
      isFirst = false;
      done(null, altered);
    },
  });
}
