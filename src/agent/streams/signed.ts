import { verifyJws, type KeySet } from "../../protocol/channel/jws.ts";
import type { Connection } from "../session/attempt.ts";
import type { TransportRequest } from "../session/transport.ts";
import { judgeStream } from "./judge.ts";
import type { Streams } from "./streams.ts";

export interface SignedStreamsOptions {
  /** The control plane, this node, and the keys that may sign. */
  readonly trust: () => Promise<{ readonly iss: string; readonly uid: string; readonly keys: KeySet }>;
  /** Address of the control plane's session, to which streams connect too. */
  readonly target: () => Omit<TransportRequest, "timeoutMs">;
  readonly streams: Pick<Streams, "obey">;
  /** Called for each stream that is not opened. */
  readonly onRefused: (error: unknown) => void;
}

/** An order to open a stream, and the ticket for its connection. */
export interface SignedStream {
  readonly jws: string;
  readonly ticket: string;
}

const DIAL_MS = 10_000;

/** Returns a function that verifies and admits the control plane's orders to open streams, and opens them. */
export function signedStreams({ trust, target, streams, onRefused }: SignedStreamsOptions) {
  return async (
    { jws, ticket }: SignedStream,
    { sid, signal: session, sessionNow }: Pick<Connection, "sid" | "signal" | "sessionNow">,
  ): Promise<Record<string, never>> => {
    try {
      const { iss, uid, keys } = await trust();
      const claims = await verifyJws("holdfast-stream+jwt", jws, keys);
      const refusal = judgeStream(claims, { iss, uid, sid, ticket, sessionNow: sessionNow() * 1000 });
      if (refusal !== undefined) throw refusal;
      await streams.obey({ claims, ticket, target: { ...target(), timeoutMs: DIAL_MS }, session });
      return {};
    } catch (error) {
      onRefused(error);
      throw error;
    }
  };
}
