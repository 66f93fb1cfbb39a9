import { InputError } from "../../errors.ts";
import type { NodeProofClaims } from "../../protocol/claims.ts";
import { PROTOCOL_VERSION } from "../../protocol/envelope.ts";
import { peekClaims, verifyJws } from "../../protocol/jws.ts";
import type { CloseReason } from "../../protocol/methods.ts";
import type { Store } from "../store/store.ts";

/** What a hello must fit. */
export interface HelloContext {
  readonly store: Store;
  /** The challenge that this socket was given. */
  readonly nonce: string;
  readonly origin: string;
  /** Key hashes that our front ends serve; empty without TLS. */
  readonly tlsPins: readonly string[];
}

export type HelloVerdict =
  | { readonly kind: "authentic"; readonly claims: NodeProofClaims }
  | { readonly kind: "deleted"; readonly claims: NodeProofClaims }
  | { readonly kind: "refused"; readonly close: CloseReason; readonly message: string };

/** Verifies the proof of a hello: the node's own key, our challenge, our origin, our TLS keys, our protocol. Changes nothing. */
export async function verifyHello(proof: string, context: HelloContext): Promise<HelloVerdict> {
  const { store, nonce, origin, tlsPins } = context;
  let claims: NodeProofClaims;
  let isDeleted: boolean;
  try {
    const { iss } = peekClaims("holdfast-node-proof+jwt", proof);
    const node = store.nodes.credentials(iss);
    const tombstone = node === undefined ? store.tombstones.get(iss) : undefined;
    const known = node === undefined ? tombstone : { key: node.keys.auth, thumbprint: node.thumbprints.auth };
    if (known === undefined) return refused("not-authentic", "unknown node");
    isDeleted = tombstone !== undefined;
    claims = await verifyJws("holdfast-node-proof+jwt", proof, new Map([[known.thumbprint, known.key]]));
  } catch (error) {
    if (error instanceof InputError) return refused("not-authentic", error.message);
    throw error;
  }
  if (claims.nonce !== nonce) return refused("not-authentic", "nonce: not the challenge of this socket");
  if (claims.aud !== origin) return refused("not-authentic", `aud: must be ${origin}`);
  if (claims.tls !== undefined && !tlsPins.includes(claims.tls)) {
    return refused("not-authentic", "tls-intercepted: tls is not a key that we serve");
  }
  if (claims.protocol !== PROTOCOL_VERSION) {
    return refused("protocol-version", `protocol ${claims.protocol} is not spoken; ${PROTOCOL_VERSION} is`);
  }
  return { kind: isDeleted ? "deleted" : "authentic", claims };
}

function refused(close: CloseReason, message: string): HelloVerdict {
  return { kind: "refused", close, message };
}
