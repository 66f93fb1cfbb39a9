import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import type { Tunnel } from "./tunnel.ts";

/** Time that one end of an aborted flow waits for the other end's count, in milliseconds. */
const TAKEN_MS = 2000;
/** Maximum number of waiting flows and requests; beyond it an end uses its own count only. */
const MAX_WAITING = 1024;
const PATH = "/taken";
const FLOW_ID = /^[0-9a-f-]{1,64}$/;
const COUNT = /^\d{1,16}$/;

interface Waiting {
  readonly taken: number;
  readonly settle: (theirs: number | undefined) => void;
}

/**
 * The service's end of the agreement on the bytes of an aborted flow. Bytes that one end sent may be lost, so each end
 * reports what it received. The connector's end sends the request, since only it can open streams.
 */
export class ByteAgreement {
  readonly #clock: Pick<Clock, "after">;
  readonly #ended = new Map<string, Waiting>();
  readonly #asked = new Map<string, Waiting>();

  constructor(clock: Pick<Clock, "after">) {
    this.#clock = clock;
  }

  /**
   * Waits for the peer's count of a flow that was aborted after this end received `taken` bytes; undefined if none
   * arrives in time.
   */
  ended(peer: string, flow: string, taken: number): Promise<number | undefined> {
    return this.#meet(`${peer} ${flow}`, taken, this.#ended, this.#asked);
  }

  /** Answers the stream if it is such a request, with 404 for an unknown flow; reports whether it was. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: string): boolean {
    if (headers[":method"] !== "POST" || headers[":path"] !== PATH) return false;
    stream.on("error", () => undefined).resume();
    const flow = headers["holdfast-flow"];
    const theirs = countOf(headers);
    if (typeof flow !== "string" || !FLOW_ID.test(flow) || theirs === undefined) {
      stream.respond({ ":status": 400 }, { endStream: true });
      return true;
    }
    void this.#meet(`${peer} ${flow}`, theirs, this.#asked, this.#ended).then((taken) => {
      if (stream.destroyed || stream.closed) return;
      const answer = taken === undefined ? { ":status": 404 } : { ":status": 200, "holdfast-taken": String(taken) };
      stream.respond(answer, { endStream: true });
    });
    return true;
  }

  #meet(
    key: string,
    taken: number,
    mine: Map<string, Waiting>,
    others: Map<string, Waiting>,
  ): Promise<number | undefined> {
    const other = others.get(key);
    if (other !== undefined) {
      others.delete(key);
      other.settle(taken);
      return Promise.resolve(other.taken);
    }
    if (mine.size >= MAX_WAITING || mine.has(key)) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const cancel = this.#clock.after(TAKEN_MS, () => {
        mine.delete(key);
        resolve(undefined);
      });
      const settle = (theirs: number | undefined): void => {
        cancel();
        resolve(theirs);
      };
      mine.set(key, { taken, settle });
    });
  }
}

/** Requests the count of the service's end and reports this end's count. Never rejects; undefined if none arrives in time. */
export function requestTaken(tunnel: Tunnel, clock: Pick<Clock, "after">, flow: string, taken: number) {
  return new Promise<number | undefined>((resolve) => {
    if (!tunnel.isFree) return resolve(undefined);
    tunnel.reserve();
    const headers: OutgoingHttpHeaders = {
      ":method": "POST",
      ":path": PATH,
      ":scheme": "https",
      ":authority": `${tunnel.peer}:443`,
      "holdfast-flow": flow,
      "holdfast-taken": String(taken),
    };
    const stream = tunnel.open(headers, { endStream: true });
    if (stream === undefined) return resolve(undefined);
    const cancel = clock.after(TAKEN_MS, () => stream.destroy());
    stream
      .on("error", () => undefined)
      .once("response", (answer) => resolve(answer[":status"] === 200 ? countOf(answer) : undefined))
      .once("close", () => {
        cancel();
        resolve(undefined);
      })
      .resume();
  });
}

function countOf(headers: IncomingHttpHeaders): number | undefined {
  const text = headers["holdfast-taken"];
  if (typeof text !== "string" || !COUNT.test(text)) return undefined;
  const count = Number(text);
  return Number.isSafeInteger(count) ? count : undefined;
}
