// A long way between two sockets: what one sends, the other gets later, in order, and as much as fits under way meanwhile.
import { connect, createServer, type Server, type Socket } from "node:net";

/** More than a way of 50 ms holds at 10 Gb/s. */
const MAX_UNDER_WAY_BYTES = 64 * 1024 * 1024;

/** Beyond it, whoever is written to does not read as fast as the other sends. */
const MAX_UNWRITTEN_BYTES = 1024 * 1024;

type Item = { readonly dueAt: number; readonly chunk: Buffer | "end" | "reset" };

/** Carries everything from one socket to the other, each byte, the end and a reset `delayMs` later. */
export function delayLine(from: Socket, to: Socket, delayMs: number, maxBytes = MAX_UNDER_WAY_BYTES): void {
  const items: Item[] = [];
  let bytes = 0;
  let timer: NodeJS.Timeout | undefined;
  let isBlocked = false;
  let hasEnded = false;
  const arrive = (): void => {
    timer = undefined;
    const now = performance.now();
    to.cork();
    let count = 0;
    for (const { dueAt, chunk } of items) {
      if (isBlocked || dueAt > now) break;
      count += 1;
      if (chunk === "end") to.end();
      else if (chunk === "reset") to.resetAndDestroy();
      else {
        bytes -= chunk.length;
        to.write(chunk);
        isBlocked = to.writableLength > MAX_UNWRITTEN_BYTES;
      }
    }
    items.splice(0, count);
    to.uncork();
    if (from.isPaused() && bytes < maxBytes / 2) from.resume();
    wait();
  };
  const wait = (): void => {
    const [next] = items;
    if (next === undefined || isBlocked || timer !== undefined || to.destroyed) return;
    timer = setTimeout(arrive, Math.max(0, Math.ceil(next.dueAt - performance.now())));
  };
  const send = (chunk: Item["chunk"]): void => {
    items.push({ dueAt: performance.now() + delayMs, chunk });
    wait();
  };
  from.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > maxBytes) from.pause();
    send(chunk);
  });
  from.on("end", () => {
    hasEnded = true;
    send("end");
  });
  from.on("error", () => undefined);
  from.on("close", (hadError) => (hadError || !hasEnded ? send("reset") : undefined));
  to.on("drain", () => {
    isBlocked = false;
    // A timer would add a millisecond to every piece.
    clearTimeout(timer);
    arrive();
  });
  to.on("close", () => {
    clearTimeout(timer);
    items.length = 0;
  });
}

/** Target of a delay proxy. */
export interface DelayedTarget {
  readonly host: string;
  readonly port: number;
  /** Half of it each way. */
  readonly roundTripMs: number;
}

/** Listens, and makes every connection as long as the target says; a connect takes a round trip too. */
export function delayProxy(listen: { host: string; port: number }, target: DelayedTarget): Promise<Server> {
  const { host, port, roundTripMs } = target;
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (near) => {
    near.on("error", () => undefined);
    setTimeout(() => {
      if (near.destroyed) return;
      const far = connect({ host, port, allowHalfOpen: true, noDelay: true });
      far.once("error", () => near.resetAndDestroy());
      far.once("connect", () => {
        if (near.destroyed) return void far.resetAndDestroy();
        delayLine(near, far, roundTripMs / 2);
        delayLine(far, near, roundTripMs / 2);
        near.resume();
      });
    }, roundTripMs);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(listen, () => resolve(server));
  });
}
