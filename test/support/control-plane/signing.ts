import { generateKeyPairSync, randomUUID } from "node:crypto";
import { importJWK } from "jose";
import type { KeysClaims } from "../../../src/protocol/documents/claims.ts";
import type { ClusterDocument, DomainDocument, NodeDocument } from "../../../src/protocol/documents/documents.ts";
import { signJws, type Signer } from "../../../src/protocol/channel/jws.ts";
import { Ed25519PublicKey, thumbprint } from "../../../src/protocol/values/keys.ts";
import type { NodeIdentity } from "../../../src/protocol/documents/claims.ts";

export interface SigningKey extends Signer {
  readonly publicKey: Ed25519PublicKey;
}

/** Creates an Ed25519 signing key. */
export async function signingKey(): Promise<SigningKey> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const publicKey = Ed25519PublicKey.parse(jwk);
  const privateKey = await importJWK(jwk, "Ed25519");
  if (privateKey instanceof Uint8Array) throw new TypeError("not an asymmetric key");
  return { kid: await thumbprint(publicKey), privateKey, publicKey };
}

export const ISS = "http://127.0.0.1:8480";
export const UID = "0b5e6a9e-31a7-4a1c-9a52-7f6d2d9f3c11";

/** The control plane's record of the node `UID`. */
export const nodeIdentity: NodeIdentity = {
  uid: UID,
  name: "n1",
  fqdn: "n1.example.net",
  domain: "example.net",
  org: "5e0a6b1a-9f5e-4a52-8a2d-0a3f7c6b1d22",
  type: "Node",
  session: "ws://127.0.0.1:8480/agent/v1/session",
};

export function keysClaims(root: SigningKey, signing: readonly SigningKey[], version = 1): KeysClaims {
  return {
    name: "keys",
    version,
    iat: 1,
    root: root.publicKey,
    signing: signing.map((key) => key.publicKey),
    spki: [],
  };
}

export function nodeDocument(changes: Partial<NodeDocument> = {}): NodeDocument {
  const { session: _session, ...node } = nodeIdentity;
  return { ...node, state: "ACTIVE", tags: {}, settings: {}, config: {}, ...changes };
}

export function clusterDocument(fqdn: string, changes: Partial<ClusterDocument> = {}): ClusterDocument {
  return { fqdn, members: [UID], tags: {}, config: {}, ...changes };
}

export function domainDocument(changes: Partial<DomainDocument> = {}): DomainDocument {
  return { fqdn: "example.net", peers: [], grants: [], ...changes };
}

interface DocumentChanges {
  readonly iss?: string;
  readonly aud?: string;
  readonly sub?: string;
}

/** Signs a document for the node `UID`; `changes` falsify it. */
export function signDocument(
  key: Signer,
  name: "node" | "cluster" | "domain",
  version: number,
  body: Record<string, unknown>,
  changes: DocumentChanges = {},
): Promise<string> {
  const sub = name === "node" ? UID : String(body["fqdn"]);
  return signJws("holdfast-document+jwt", { iss: ISS, aud: UID, name, sub, version, iat: 1, body, ...changes }, key);
}

export const newSid = (): string => randomUUID();
