import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { KeysClaims } from "../documents/claims.ts";
import { peekClaims, verifyJws, type KeySet } from "./jws.ts";
import { thumbprint, type Ed25519PublicKey } from "../values/keys.ts";
import { Jws } from "../values/values.ts";

const KeysJws = Jws.max(16_384);

/** One version of the keys document on the wire; `cross` is the new root's signature if the root changed. */
export const KeysEnvelope = z.object({ jws: KeysJws, cross: KeysJws.optional() });
export type KeysEnvelope = z.infer<typeof KeysEnvelope>;

/** Versions in ascending order. */
export const KeysEnvelopes = z.array(KeysEnvelope).max(4096);

/** Public keys by their thumbprints. */
export async function keySetOf(keys: readonly Ed25519PublicKey[]): Promise<KeySet> {
  return new Map(await Promise.all(keys.map(async (key) => [await thumbprint(key), key] as const)));
}

/**
 * Follows the versions of the keys document to the newest. `trusted` is either the newest version already accepted, whose
 * successors are expected, or the thumbprint of a root (from a license), where everything before the version it signed is passed over.
 * Each step must be signed by the root before it, raise the version by exactly one and, where the root changes, be signed by the
 * new root too over the identical payload.
 * @throws {InputError} `bad-signature` where a signature, a version or the start does not hold.
 */
export async function walkKeysChain(
  trusted: string | KeysClaims,
  envelopes: readonly KeysEnvelope[],
): Promise<KeysClaims> {
  if (typeof trusted !== "string") return walk(trusted, envelopes);
  for (const [index, envelope] of envelopes.entries()) {
    const start = await selfSigned(envelope, trusted);
    if (start !== undefined) return walk(start, envelopes.slice(index + 1));
  }
  throw new InputError("bad-signature", `no version of the keys document is signed by the root ${trusted}`);
}

async function walk(start: KeysClaims, envelopes: readonly KeysEnvelope[]): Promise<KeysClaims> {
  let current = start;
  for (const envelope of envelopes) current = await step(current, envelope);
  return current;
}

async function step(current: KeysClaims, envelope: KeysEnvelope): Promise<KeysClaims> {
  const next = await verifyJws("holdfast-keys+jwt", envelope.jws, await keySetOf([current.root]));
  if (next.version !== current.version + 1) {
    throw new InputError("bad-signature", `keys version ${next.version} does not follow version ${current.version}`);
  }
  if (next.root.x !== current.root.x) await verifyCross(envelope, next);
  return next;
}

/** The claims of a version that names the trusted root and is signed by it; undefined for a version of another root. */
async function selfSigned(envelope: KeysEnvelope, rootThumbprint: string): Promise<KeysClaims | undefined> {
  for (const jws of [envelope.jws, envelope.cross]) {
    if (jws === undefined) continue;
    const claims = await verifiedBySelf(jws);
    if (claims !== undefined && (await thumbprint(claims.root)) === rootThumbprint) return claims;
  }
  return undefined;
}

async function verifiedBySelf(jws: string): Promise<KeysClaims | undefined> {
  try {
    const { root } = peekClaims("holdfast-keys+jwt", jws);
    return await verifyJws("holdfast-keys+jwt", jws, await keySetOf([root]));
  } catch (error) {
    if (error instanceof InputError) return undefined;
    throw error;
  }
}

async function verifyCross(envelope: KeysEnvelope, next: KeysClaims): Promise<void> {
  if (envelope.cross === undefined) {
    throw new InputError(
      "bad-signature",
      `keys version ${next.version} changes the root without the new root's signature`,
    );
  }
  if (payloadOf(envelope.cross) !== payloadOf(envelope.jws)) {
    throw new InputError(
      "bad-signature",
      `keys version ${next.version}: the two signatures are over different payloads`,
    );
  }
  await verifyJws("holdfast-keys+jwt", envelope.cross, await keySetOf([next.root]));
}

function payloadOf(jws: string): string | undefined {
  return jws.split(".")[1];
}
