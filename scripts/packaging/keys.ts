import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { importJWK } from "jose";
import { z } from "zod";
import { parseStrictJson } from "../../src/lib/formats/strict-json.ts";
import type { Signer } from "../../src/protocol/channel/jws.ts";
import { Ed25519PublicKey, thumbprint } from "../../src/protocol/values/keys.ts";
import { ReleaseKeys } from "../../src/protocol/documents/release.ts";
import { Base64Url32 } from "../../src/protocol/values/values.ts";

const PrivateKey = Ed25519PublicKey.extend({ d: Base64Url32 });
const LIMITS = { maxBytes: 65_536, maxDepth: 4 };

/** A key that signs releases, with its public half. */
export interface ReleaseSigner extends Signer {
  readonly publicKey: Ed25519PublicKey;
}

/** Makes a pair: the private key as a JWK in the file, which must not be there yet, the public one as a JWK set in FILE.pub. */
export function makeKeys(file: string): void {
  const jwk = PrivateKey.parse(generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }));
  const { kty, crv, x } = jwk;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(jwk)}\n`, { mode: 0o600, flag: "wx" });
  writeFileSync(`${file}.pub`, keysText([{ kty, crv, x }]), { mode: 0o644 });
}

/** Reads a private key. */
export async function signerFrom(file: string): Promise<ReleaseSigner> {
  const { kty, crv, x, d } = parse(PrivateKey, file);
  const publicKey = { kty, crv, x };
  const privateKey = await importJWK({ ...publicKey, d }, "Ed25519");
  return { kid: await thumbprint(publicKey), privateKey, publicKey };
}

/** Reads a JWK set of public keys. */
export function keysFrom(file: string): readonly Ed25519PublicKey[] {
  return parse(ReleaseKeys, file).keys;
}

/** `release-keys.json`. */
export function keysText(keys: readonly Ed25519PublicKey[]): string {
  return `${JSON.stringify({ keys: keys.map(({ kty, crv, x }) => ({ kty, crv, x })) }, undefined, 2)}\n`;
}

function parse<T>(schema: z.ZodType<T>, file: string): T {
  const parsed = schema.safeParse(parseStrictJson(readFileSync(file), LIMITS));
  if (!parsed.success) throw new Error(`${file}: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}
