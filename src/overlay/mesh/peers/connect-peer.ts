import type { ClientHttp2Session } from "node:http2";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshPeer } from "../../../protocol/overlay/mesh.ts";
import { clientSession } from "../transport/http2.ts";
import { dialTls, endTogether, whenProved, type MeshIdentity } from "../transport/tls.ts";
import type { PeerDialer } from "../paths/peer-dialer.ts";
import type { Connected } from "./tunnel.ts";

export interface ConnectPeerOptions {
  readonly clock: Clock;
  readonly peerDialer: PeerDialer;
  /** Returns the identity of this node, once it is known. */
  readonly identity: () => MeshIdentity | undefined;
}

/** Time limit for splice, TLS and the first SETTINGS together. */
const DEADLINE_MS = 10_000;

/**
 * Opens a session with exactly this peer through a gateway, which can neither read it nor impersonate the peer.
 * Resolves when the peer has sent its SETTINGS, and so has accepted this node's key.
 * @throws {SessionError} with an `OverlayReason` as its code.
 */
export async function connectPeer(
  { clock, peerDialer, identity }: ConnectPeerOptions,
  peer: MeshPeer,
  outer: AbortSignal,
): Promise<Connected> {
  const own = identity();
  if (own === undefined) throw new SessionError("no-path", "this node has no overlay key yet; its agent sends it");
  const deadline = new AbortController();
  const cancel = clock.after(DEADLINE_MS, () =>
    deadline.abort(new SessionError("connect-timeout", `${peer.uid} did not complete the session within 10 s`)),
  );
  const signal = AbortSignal.any([outer, deadline.signal]);
  try {
    const { stream, pathId } = await peerDialer.splice(peer.uid, { signal });
    try {
      const socket = dialTls(stream, own, "holdfast-peer");
      endTogether(stream, socket);
      await whenProved(socket, signal).then(
        ({ key }) => {
          if (key === peer.key) return;
          throw new SessionError("peer-unproven", `the node that answered has another key than ${peer.uid}`);
        },
        (error: unknown) => {
          throw new SessionError("peer-unproven", `${peer.uid} did not prove its key`, { cause: error });
        },
      );
      const session = clientSession(socket, peer.uid, { clock });
      await spoken(session, signal);
      return { session, pathId, socket };
    } catch (error) {
      stream.on("error", () => undefined).destroy();
      throw signal.aborted ? signal.reason : error;
    }
  } finally {
    cancel();
  }
}

/** Resolves on the first SETTINGS of the other side. */
function spoken(session: ClientHttp2Session, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const lost = (): void => fail(new SessionError("tunnel-lost", "the session ended before its first SETTINGS"));
    const onAbort = (): void => fail(signal.reason);
    const clean = (): void => {
      signal.removeEventListener("abort", onAbort);
      session.off("remoteSettings", done).off("close", lost);
    };
    const done = (): void => {
      clean();
      resolve();
    };
    const fail = (reason: unknown): void => {
      clean();
      session.destroy();
      reject(reason instanceof Error ? reason : new SessionError("tunnel-lost", "given up"));
    };
    session.once("remoteSettings", done).once("close", lost);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  });
}
