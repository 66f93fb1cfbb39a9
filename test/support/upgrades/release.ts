import { createHash, createHmac, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { Ed25519PublicKey, thumbprint } from "../../../src/protocol/values/keys.ts";
import type { RawEntry } from "../data-store/raw-tar.ts";

export const NOW = Date.UTC(2026, 10, 21, 12) / 1000;
export const OWN = { version: "0.1.0", build: "20261101-120000.0123456789ab" };
export const OWN_VERSION = "0.1.20261101-1200";
export const NEW_VERSION = "0.1.20261120-1200";

export interface ReleaseKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: Ed25519PublicKey;
}

export async function releaseKey(): Promise<ReleaseKey> {
  const { privateKey } = generateKeyPairSync("ed25519");
  const publicKey = Ed25519PublicKey.parse(privateKey.export({ format: "jwk" }));
  return { kid: await thumbprint(publicKey), privateKey, publicKey };
}

const base64 = (text: string): string => Buffer.from(text).toString("base64url");

/** A compact JWS of any texts, including those that a library refuses to sign. */
export function rawJws(key: ReleaseKey, claims: string, header: string = headerText(key)): string {
  const input = `${base64(header)}.${base64(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), key.privateKey).toString("base64url")}`;
}

export function headerText(key: Pick<ReleaseKey, "kid">, changes: Record<string, unknown> = {}): string {
  return JSON.stringify({ alg: "Ed25519", typ: "holdfast-release+jwt", kid: key.kid, ...changes });
}

/** A JWS authenticated by the bytes of the public key. */
export function hmacJws(key: ReleaseKey, claims: string): string {
  const input = `${base64(headerText(key, { alg: "HS256" }))}.${base64(claims)}`;
  const secret = Buffer.from(key.publicKey.x, "base64url");
  return `${input}.${createHmac("sha256", secret).update(input).digest("base64url")}`;
}

/** The minimal contents of a version's package. */
export const GOOD_ENTRIES: readonly RawEntry[] = [
  { path: "./" },
  { path: "./node", data: "#!/bin/sh\nexit 0\n", mode: 0o755 },
  { path: "./holdfast.mjs", data: "export {};\n" },
  { path: "./version", data: `${NEW_VERSION}\n` },
  { path: "./licences/" },
  { path: "./licences/zod.txt", data: "MIT\n" },
];

export interface Claims extends Record<string, unknown> {
  files: Record<string, Record<string, unknown>>;
}

/** Claims of a release for amd64. */
export function claimsOf(archive: Buffer, name: string, unpackedSize: number, version = NEW_VERSION): Claims {
  return {
    product: "holdfast",
    version,
    build: "20261120-120000.0123456789ab",
    iat: NOW - 3600,
    exp: NOW + 86_400,
    minVersion: "0.0.00000000-0000",
    files: { amd64: { name, size: archive.length, unpackedSize, sha256: sha256(archive) } },
  };
}

export const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** Returns the bytes of all files of a package. */
export function unpackedSizeOf(entries: readonly RawEntry[]): number {
  return entries.reduce((sum, { data = "" }) => sum + Buffer.byteLength(data), 0);
}
