import { InputError } from "../../errors.ts";
import type { NodeProofClaims } from "../../protocol/documents/claims.ts";
import { PROTOCOL_VERSION } from "../../protocol/channel/envelope.ts";
import { peekClaims, verifyJws } from "../../protocol/channel/jws.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TombstoneStore } from "../nodes/tombstone-store.ts";
import type { RefusalKind } from "./refusals.ts";

/** Expected values of a hello. */
export interface HelloContext {
  readonly store: {
    readonly nodes: Pick<NodeStore, "credentials">;
    readonly tombstones: Pick<TombstoneStore, "get">;
  };
  /** Challenge sent on this socket. */
  readonly nonce: string;
  readonly origin: string;
  /** Hashes of the TLS keys of our front ends; empty without TLS. */
  readonly tlsPins: readonly string[];
}

export type HelloVerdict =
  | KnownHello
  | { readonly kind: "deleted"; readonly claims: NodeProofClaims }
  /** `uid` is set only for known nodes. */
  | {
      readonly kind: "refused";
      readonly why: RefusalKind;
      readonly message: string;
      readonly uid?: string | undefined;
    };

/** A hello of a registered node; `unsupported` is authentic, but with an unsupported protocol version. */
export interface KnownHello {
  readonly kind: "authentic" | "unsupported";
  readonly claims: NodeProofClaims;
  /** Thumbprint of the key that signed it. */
  readonly signer: string;
}

/** Verifies the proof of a hello: key, challenge, origin, TLS key and protocol version. Changes nothing. */
export async function verifyHello(proof: string, context: HelloContext): Promise<HelloVerdict> {
  const { store, nonce, origin, tlsPins } = context;
  let uid: string | undefined;
  const refused = (why: RefusalKind, message: string): HelloVerdict => ({ kind: "refused", why, message, uid });
  let claims: NodeProofClaims;
  let signer: string;
  let isDeleted: boolean;
  try {
    const { iss } = peekClaims("holdfast-node-proof+jwt", proof);
    const node = await store.nodes.credentials(iss);
    const tombstone = node === undefined ? await store.tombstones.get(iss) : undefined;
    const known = node === undefined ? tombstone : { key: node.keys.auth, thumbprint: node.thumbprints.auth };
    if (known === undefined) return refused("unknown-node", "unknown node");
    uid = iss;
    isDeleted = tombstone !== undefined;
    signer = known.thumbprint;
    claims = await verifyJws("holdfast-node-proof+jwt", proof, new Map([[known.thumbprint, known.key]]));
  } catch (error) {
    if (error instanceof InputError) return refused("signature", error.message);
    throw error;
  }
  if (claims.nonce !== nonce) return refused("signature", "nonce: not the challenge of this socket");
  if (claims.aud !== origin) return refused("audience", `aud: must be ${origin}`);
  const { tls } = claims;
  if (tls === undefined ? tlsPins.length > 0 : !tlsPins.includes(tls)) {
    return refused("tls-intercepted", "tls-intercepted: the TLS key is not one of this control plane");
  }
  if (isDeleted) return { kind: "deleted", claims };
  return { kind: claims.protocol === PROTOCOL_VERSION ? "authentic" : "unsupported", claims, signer };
}
