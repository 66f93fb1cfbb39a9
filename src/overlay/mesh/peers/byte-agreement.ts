import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import type { Tunnel } from "./tunnel.ts";

/** Time that one end of a cut flow waits for the other end's count. */
export const TAKEN_MS = 2000;
/** Flows and questions that wait at a time; beyond that an end goes by what it knows alone. */
const MAX_WAITING = 1024;
const PATH = "/taken";
const FLOW_ID = /^[0-9a-f-]{1,64}$/;
const COUNT = /^\d{1,16}$/;

interface Waiting {
  readonly taken: number;
  readonly settle: (theirs: number | undefined) => void;
}

/**
 * The service's end of the agreement on what a flow that was cut has carried: what one end has sent may have got lost under way, so each
 * end tells what it took. The connector's end asks, since only it can open streams.
 */
export class ByteAgreement {
  readonly #clock: Pick<Clock, "after">;
  readonly #ended = new Map<string, Waiting>();
  readonly #asked = new Map<string, Waiting>();

  constructor(clock: Pick<Clock, "after">) {
    this.#clock = clock;
  }

  /** A flow was cut after this end took so many bytes. Resolves to what the other end took, undefined when it does not say so soon. */
  ended(peer: string, flow: string, taken: number): Promise<number | undefined> {
    return this.#meet(`${peer} ${flow}`, taken, this.#ended, this.#asked);
  }

  /** Whether the stream asks for what was taken; if so it is answered, or refused when there is no such flow. */
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

/** The connector's end: tells what it took of a flow that was cut, and resolves to what the service's end took. Never rejects. */
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
