import { compactVerify, CompactSign, decodeProtectedHeader, importJWK } from "jose";
import type { CryptoKey } from "jose";
import { InputError } from "../../errors.ts";
import { parseStrictJson, type JsonLimits } from "../../lib/formats/strict-json.ts";
import { claimsByType, type ClaimsByType, type JwsType } from "../documents/claims.ts";
import { describeIssues } from "./envelope.ts";
import type { Ed25519PublicKey } from "../values/keys.ts";

/** Names of the one algorithm: RFC 9864's, and the older one of RFC 8037, which is all that clients of the API know. */
const ALGORITHM = "Ed25519";
const OLDER_ALGORITHM = "EdDSA";

/** Algorithm names that a verifier accepts; the first is the one that is written. Clients of the API read licenses. */
function algorithmsOf(typ: JwsType): readonly [string, ...string[]] {
  return typ === "holdfast-license+jwt" ? [OLDER_ALGORITHM, ALGORITHM] : [ALGORITHM];
}
const CLAIMS_LIMITS: JsonLimits = { maxBytes: 64 * 1024 * 1024, maxDepth: 32 };
const HEADER_MEMBERS = "alg,kid,typ";

/** A private signing key, with the identifier of its public key. */
export interface Signer {
  readonly kid: string;
  readonly privateKey: CryptoKey;
}

/** Accepted public keys by thumbprint. */
export type KeySet = ReadonlyMap<string, Ed25519PublicKey>;

/** Signs claims as a compact JWS (RFC 7515) whose header holds exactly `alg`, `typ` and `kid`. */
export function signJws<T extends JwsType>(typ: T, claims: ClaimsByType[T], signer: Signer): Promise<string> {
  return new CompactSign(new TextEncoder().encode(JSON.stringify(claims)))
    .setProtectedHeader({ alg: algorithmsOf(typ)[0], typ, kid: signer.kid })
    .sign(signer.privateKey);
}

/**
 * Verifies a compact JWS of one fixed `typ` against a set of keys and parses its claims. The caller
 * must check audience, issuer and times.
 * @throws {InputError} `bad-signature` for the form, the header, the key or the signature; `invalid-claims` for the content.
 */
export async function verifyJws<T extends JwsType>(typ: T, jws: string, keys: KeySet): Promise<ClaimsByType[T]> {
  const { kid, alg } = headerOf(jws, typ);
  const key = keys.get(kid);
  if (key === undefined) throw new InputError("bad-signature", `${typ}: signed by the unknown key ${kid}`);
  let payload: Uint8Array;
  try {
    const verified = await compactVerify(jws, await importJWK(key, alg), { algorithms: [alg] });
    payload = verified.payload;
  } catch (error) {
    throw new InputError("bad-signature", `${typ}: the signature does not verify`, { cause: error });
  }
  return parseClaims(typ, payload);
}

/** Reads the claims without verifying, to find the key that verifies them. They must not be trusted. */
export function peekClaims<T extends JwsType>(typ: T, jws: string): ClaimsByType[T] {
  headerOf(jws, typ);
  return parseClaims(typ, Buffer.from(jws.split(".")[1] ?? "", "base64url"));
}

/** Returns `kid` and `alg` of a JWS; its header must have exactly the accepted members. */
function headerOf(jws: string, typ: JwsType): { readonly kid: string; readonly alg: string } {
  let header: ReturnType<typeof decodeProtectedHeader>;
  try {
    header = decodeProtectedHeader(jws);
  } catch (error) {
    throw new InputError("bad-signature", `${typ}: not a compact JWS`, { cause: error });
  }
  if (Object.keys(header).sort().join(",") !== HEADER_MEMBERS) {
    throw new InputError("bad-signature", `${typ}: the header must hold exactly alg, typ and kid`);
  }
  const { alg, kid } = header;
  const accepted = algorithmsOf(typ);
  if (alg === undefined || !accepted.includes(alg)) {
    throw new InputError("bad-signature", `${typ}: alg must be ${accepted.join(" or ")}`);
  }
  if (header.typ !== typ) throw new InputError("bad-signature", `expected ${typ}, not ${String(header.typ)}`);
  if (typeof kid !== "string") throw new InputError("bad-signature", `${typ}: kid must be text`);
  return { kid, alg };
}

function parseClaims<T extends JwsType>(typ: T, payload: Uint8Array): ClaimsByType[T] {
  const parsed = claimsByType[typ].safeParse(parseStrictJson(payload, CLAIMS_LIMITS));
  if (!parsed.success) throw new InputError("invalid-claims", `${typ}: ${describeIssues(parsed.error).join("; ")}`);
  // The table pairs each typ with its schema, which the index type cannot follow through a generic.
  return parsed.data as ClaimsByType[T];
}
