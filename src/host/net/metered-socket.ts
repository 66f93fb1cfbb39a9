import type { Duplex } from "node:stream";
import { MessageBudget, type BudgetLimits } from "../../lib/async/message-budget.ts";
import type { Clock } from "../clock.ts";
import type { WebSocketLike } from "./frame-socket.ts";

export interface Metering {
  /** The stream below the WebSocket: its bytes are charged, those of fragments and control frames included. */
  readonly stream: Pick<Duplex, "on">;
  readonly limits: BudgetLimits;
  readonly clock: Pick<Clock, "elapsed" | "after">;
  /** Called once, when the peer went on for longer than it may. Reading stays paused: the owner closes the connection. */
  readonly onExceeded: () => void;
}

/** The part of a WebSocket that is used. */
export type MeteredSocket = Pick<WebSocketLike, "on" | "pause" | "resume" | "readyState" | "OPEN">;

/**
 * Limits what is read from a WebSocket: messages, pings and pongs are charged to a budget, and reading pauses until the budget has
 * recovered, which lets TCP slow the peer down. Messages of one chunk that was read already still arrive. The returned function charges
 * more for a message that causes more work than its size suggests.
 */
export function meterSocket(
  socket: MeteredSocket,
  { stream, limits, clock, onExceeded }: Metering,
): (messages: number) => void {
  const budget = new MessageBudget(limits, clock.elapsed());
  let isExceeded = false;
  let pausedUntil = 0;
  let cancel: (() => void) | undefined;
  const resume = (): void => {
    const leftMs = pausedUntil - clock.elapsed();
    cancel = leftMs > 0 ? clock.after(leftMs, resume) : undefined;
    if (cancel === undefined && socket.readyState === socket.OPEN) socket.resume();
  };
  const charge = (cost: { readonly messages?: number; readonly bytes?: number }): void => {
    if (isExceeded || socket.readyState !== socket.OPEN) return;
    const verdict = budget.charge(cost, clock.elapsed());
    if (verdict.kind === "within") return;
    socket.pause();
    if (verdict.kind === "exceeded") {
      isExceeded = true;
      cancel?.();
      onExceeded();
      return;
    }
    pausedUntil = clock.elapsed() + verdict.ms;
    cancel ??= clock.after(verdict.ms, resume);
  };
  const one = (): void => charge({ messages: 1 });
  stream.on("data", (chunk: Buffer) => charge({ bytes: chunk.byteLength }));
  socket.on("message", one);
  socket.on("ping", one);
  socket.on("pong", one);
  socket.on("close", () => cancel?.());
  return (messages) => charge({ messages });
}
