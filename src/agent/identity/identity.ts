import { generateKeyPairSync } from "node:crypto";
import { importJWK } from "jose";
import { z } from "zod";
import { InternalError } from "../../errors.ts";
import type { Files } from "../../host/files.ts";
import { stateFile, type StateFile } from "../../host/state-file.ts";
import { KeysClaims, NodeIdentity, Origin } from "../../protocol/claims.ts";
import { Ed25519PublicKey, P256PublicKey, thumbprint, X25519PublicKey, type NodeKeys } from "../../protocol/keys.ts";
import type { Signer } from "../../protocol/jws.ts";
import { Base64Url32 } from "../../protocol/values.ts";

const Private = { d: Base64Url32 };

/** The node's three private keys as JWKs (RFC 8037, RFC 7518). They never leave the machine. */
export const PrivateKeys = z.object({
  auth: Ed25519PublicKey.extend(Private),
  overlay: P256PublicKey.extend(Private),
  wireguard: X25519PublicKey.extend(Private),
});
export type PrivateKeys = z.infer<typeof PrivateKeys>;

/** Whom the node obeys: the origin it registered with and the newest keys document it has accepted. */
export const ControlPlane = z.object({ iss: Origin, keys: KeysClaims });
export type ControlPlane = z.infer<typeof ControlPlane>;

/** What a registered node knows of itself and of its control plane; one file, so that neither exists without the other. */
export const Registration = z.object({ node: NodeIdentity, controlPlane: ControlPlane });
export type Registration = z.infer<typeof Registration>;

/** The files below `identity/`. */
export interface IdentityFiles {
  readonly keys: StateFile<PrivateKeys>;
  readonly registration: StateFile<Registration>;
  readonly counter: StateFile<{ n: number }>;
}

export function identityFiles(files: Files, stateDir: string): IdentityFiles {
  const at = (name: string): string => `${stateDir}/identity/${name}.json`;
  return {
    keys: stateFile(files, { path: at("keys"), schema: PrivateKeys, keepsPrevious: true }),
    registration: stateFile(files, { path: at("registration"), schema: Registration, keepsPrevious: true }),
    counter: stateFile(files, { path: at("counter"), schema: z.object({ n: z.int().min(1) }), keepsPrevious: true }),
  };
}

/** Makes the node's three key pairs. */
export function generateKeys(): PrivateKeys {
  return PrivateKeys.parse({
    auth: generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }),
    overlay: generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" }),
    wireguard: generateKeyPairSync("x25519").privateKey.export({ format: "jwk" }),
  });
}

/** The public halves, and nothing else. */
export function publicKeys(keys: PrivateKeys): NodeKeys {
  return {
    auth: Ed25519PublicKey.parse(keys.auth),
    overlay: P256PublicKey.parse(keys.overlay),
    wireguard: X25519PublicKey.parse(keys.wireguard),
  };
}

/** Signs as the node: its `auth` key with its thumbprint as `kid`. */
export async function authSigner(keys: PrivateKeys): Promise<Signer> {
  const privateKey = await importJWK(keys.auth, "Ed25519");
  if (privateKey instanceof Uint8Array) throw new InternalError("internal", "an Ed25519 key cannot be symmetric");
  return { kid: await thumbprint(publicKeys(keys).auth), privateKey };
}

/**
 * The next session counter, on disk before it is returned. It starts at the wall clock's milliseconds, so that a counter lost
 * with its previous copy still goes on above every earlier one.
 */
export async function nextCounter(counter: StateFile<{ n: number }>, now: number): Promise<number> {
  const stored = await counter.load();
  // A previous copy may be one behind what was used; the step leaves room for it.
  const n = stored.is === "good" ? stored.value.n + 1 : stored.is === "recovered" ? stored.value.n + 1000 : now;
  await counter.save({ n });
  return n;
}
