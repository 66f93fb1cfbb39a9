import { createPublicKey, diffieHellman, generateKeyPairSync } from "node:crypto";
import { InputError } from "../../errors.ts";
import type { License, RegisterClaims } from "../../protocol/documents/claims.ts";
import type { NodeKeys, NodeThumbprints } from "../../protocol/values/keys.ts";

/** Stored facts that decide a registration. */
export interface RegistrationFacts {
  /** Key thumbprints of the node that already has the license's UID. */
  readonly registered: NodeThumbprints | undefined;
  readonly isDeleted: boolean;
  /** UID of another node that has one of the keys. */
  readonly keyOwner: string | undefined;
  /** Set if another node or a cluster has the name. */
  readonly isNameTaken: boolean;
}

export type RegistrationVerdict =
  | { readonly kind: "new" }
  | { readonly kind: "again" }
  | { readonly kind: "refused"; readonly code: "license-reused" | "key-in-use" | "license-expired" | "name-taken" };

/**
 * Decides about a license and keys with valid signatures. A repeated registration with the same keys succeeds, since the first reply may
 * have been lost. Pure.
 */
export function judgeRegistration(
  license: Pick<License, "exp">,
  keys: NodeThumbprints,
  facts: RegistrationFacts,
  nowSeconds: number,
): RegistrationVerdict {
  if (facts.isDeleted) return { kind: "refused", code: "license-expired" };
  if (facts.registered !== undefined) {
    return hasSameKeys(facts.registered, keys) ? { kind: "again" } : { kind: "refused", code: "license-reused" };
  }
  if (license.exp <= nowSeconds) return { kind: "refused", code: "license-expired" };
  if (facts.keyOwner !== undefined) return { kind: "refused", code: "key-in-use" };
  return facts.isNameTaken ? { kind: "refused", code: "name-taken" } : { kind: "new" };
}

/**
 * Checks the claims against each other.
 * @throws {InputError} `bad-signature`, naming the claim
 */
export function checkClaims(
  license: License,
  claims: Pick<RegisterClaims, "aud">,
  origin: string,
  authThumbprint: string,
): void {
  if (license.iss !== origin) throw new InputError("bad-signature", `license.iss: must be ${origin}`);
  if (claims.aud !== origin) throw new InputError("bad-signature", `aud: must be ${origin}`);
  if (license.cnf !== undefined && license.cnf.jkt !== authThumbprint) {
    throw new InputError("bad-signature", "license.cnf.jkt: the license is bound to another key");
  }
}

/**
 * Checks that the public keys are points of their curves, and that the X25519 key does not have a small order (RFC 7748 §6.1).
 * @throws {InputError} `bad-signature`, naming the key
 */
export function checkKeys(keys: NodeKeys): void {
  try {
    createPublicKey({ key: keys.overlay, format: "jwk" });
  } catch (error) {
    throw new InputError("bad-signature", "keys.overlay: not a point of P-256", { cause: error });
  }
  try {
    const { privateKey } = generateKeyPairSync("x25519");
    diffieHellman({ privateKey, publicKey: createPublicKey({ key: keys.wireguard, format: "jwk" }) });
  } catch (error) {
    throw new InputError("bad-signature", "keys.wireguard: not a usable X25519 key", { cause: error });
  }
}

function hasSameKeys(a: NodeThumbprints, b: NodeThumbprints): boolean {
  return a.auth === b.auth && a.overlay === b.overlay && a.wireguard === b.wireguard;
}
