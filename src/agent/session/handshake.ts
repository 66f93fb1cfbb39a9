import { SessionError } from "../../errors.ts";
import type { DocumentVersions, ServerProofClaims } from "../../protocol/documents/claims.ts";
import { signJws, verifyJws, type KeySet, type Signer } from "../../protocol/channel/jws.ts";
import type { Registration } from "../identity/identity.ts";
import { defined } from "../../lib/defined.ts";

export interface NodeProofInput {
  readonly registration: Registration;
  readonly signer: Signer;
  readonly nonce: string;
  readonly cnonce: string;
  readonly n: number;
  readonly bootId: string;
  readonly version: string;
  readonly have: DocumentVersions;
  /** Hash of the server's public key as seen here; undefined over loopback `ws://`. */
  readonly tlsKey: string | undefined;
  /** The version of the protocol that is to be spoken. */
  readonly protocol: number;
}

/** Signs the node's side of the handshake. */
export function proveNode(input: NodeProofInput): Promise<string> {
  return signJws(
    "holdfast-node-proof+jwt",
    {
      iss: input.registration.node.uid,
      aud: input.registration.controlPlane.iss,
      nonce: input.nonce,
      cnonce: input.cnonce,
      n: input.n,
      bootId: input.bootId,
      version: input.version,
      protocol: input.protocol,
      have: input.have,
      ...defined({ tls: input.tlsKey }),
    },
    input.signer,
  );
}

/**
 * Verifies the control plane's side of the handshake.
 * @throws {InputError} `bad-signature`; {SessionError} `not-authentic` or `tls-intercepted`.
 */
export async function judgeServerProof(
  proof: string,
  expected: {
    readonly registration: Registration;
    readonly cnonce: string;
    readonly tlsKey: string | undefined;
    readonly keys: KeySet;
  },
): Promise<ServerProofClaims> {
  const claims = await verifyJws("holdfast-server-proof+jwt", proof, expected.keys);
  const { node, controlPlane } = expected.registration;
  const wrong =
    claims.iss !== controlPlane.iss
      ? "iss"
      : claims.aud !== node.uid
        ? "aud"
        : claims.nonce !== expected.cnonce
          ? "nonce"
          : "";
  if (wrong !== "") throw new SessionError("not-authentic", `the control plane's proof has a wrong ${wrong}`);
  if (expected.tlsKey !== undefined && claims.tls?.includes(expected.tlsKey) !== true) {
    throw new SessionError("tls-intercepted", "the TLS key seen here is not one that the control plane serves", {
      details: { seen: expected.tlsKey },
    });
  }
  return claims;
}
