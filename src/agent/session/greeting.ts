import type { Dialler } from "../../host/dial.ts";
import { HANDSHAKE_LIMITS, parseMessage } from "../../protocol/envelope.ts";
import { controlMethods } from "../../protocol/methods.ts";
import { webSocketTransport, type OpenTransport, type Transport } from "./transport.ts";

/**
 * Goes as far into a session as anybody gets without saying who they are: a WebSocket as a node opens it, and the challenge that comes
 * first. Rejects when the control plane does not get that far, whatever it answers instead.
 */
export async function hearChallenge(
  { dialler, now }: { readonly dialler: Dialler; readonly now: () => number },
  { session, pins }: { readonly session: string; readonly pins: readonly string[] },
  { signal, timeoutMs }: { readonly signal: AbortSignal; readonly timeoutMs: number },
): Promise<void> {
  const request = { url: session, pins, knownAddresses: [], timeoutMs };
  let opening: Promise<Transport> | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      const listener: Parameters<OpenTransport>[1] = {
        onHeard: () => undefined,
        onPong: () => undefined,
        onEnd: ({ reason }) => reject(new Error(reason)),
        onMessage: (frame) => (isChallenge(frame) ? resolve() : reject(new Error("it begins with no challenge"))),
      };
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      opening = webSocketTransport(dialler, now)(request, listener, signal);
      opening.catch(reject);
    });
  } finally {
    // The challenge may have come before this was told that it is open.
    (await opening?.catch(() => undefined))?.terminate();
  }
}

function isChallenge(frame: string): boolean {
  try {
    const message = parseMessage(frame, HANDSHAKE_LIMITS);
    if (message.kind !== "notification" || message.method !== "session.challenge") return false;
    return controlMethods["session.challenge"].params.safeParse(message.params).success;
  } catch {
    return false;
  }
}
