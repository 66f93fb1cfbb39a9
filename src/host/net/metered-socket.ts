import type { Duplex } from "node:stream";
import { MessageBudget, type BudgetLimits } from "../../lib/async/message-budget.ts";
import type { Clock } from "../clock.ts";
import type { WebSocketLike } from "./frame-socket.ts";

export interface Metering {
  /** Stream below the WebSocket; all its bytes are charged, including fragments and control frames. */
  readonly stream: Pick<Duplex, "on">;
  readonly limits: BudgetLimits;
  readonly clock: Pick<Clock, "elapsed" | "after">;
  /** Called once when the peer exceeds the limit for too long. Reading stays paused; the owner closes the connection. */
  readonly onExceeded: () => void;
}

/** The used part of a WebSocket. */
export type MeteredSocket = Pick<WebSocketLike, "on" | "pause" | "resume" | "readyState" | "OPEN">;

/**
 * Limits what is read from a WebSocket: charges messages, pings and pongs to a budget, and pauses reading until the
 * budget has recovered, so that TCP slows down the peer. Messages in a chunk already read still arrive. The returned
 * function charges extra for a message that causes more work than its size suggests.
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
