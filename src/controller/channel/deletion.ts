import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { DeletedClaims } from "../../protocol/documents/claims.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import type { Sessions } from "./sessions.ts";
import type { Triggers } from "./triggers.ts";

interface Signer {
  readonly keys: Pick<ControlKeys, "signing">;
  readonly origin: string;
}

export interface DismissalDeps extends Signer {
  readonly sessions: Pick<Sessions, "remove">;
  readonly triggers: Pick<Triggers, "nodeRemoved">;
  readonly turns: Pick<KeyedQueue, "run">;
}

/** Returns a function that fails the triggers of a deleted node, notifies it and ends its session. */
export function dismissal({ sessions, triggers, turns, ...signer }: DismissalDeps): (uid: string) => Promise<void> {
  // In the node's turn: a hello that was stored before the deletion has opened its session by then.
  return (uid) =>
    turns.run(uid, async () => {
      triggers.nodeRemoved(uid);
      const session = sessions.remove(uid);
      if (session === undefined) return;
      const claims = { aud: uid, nonce: session.cnonce, iat: session.now() };
      session.peer.notify("session.deleted", { jws: await deletedNotice(signer, claims) });
      session.end("deleted");
    });
}

/** Returns a signed notice that the node `aud` was deleted, with the nonce it chose. */
export function deletedNotice({ keys, origin }: Signer, claims: Omit<DeletedClaims, "iss">): Promise<string> {
  return signJws("holdfast-deleted+jwt", { iss: origin, ...claims }, keys.signing);
}
