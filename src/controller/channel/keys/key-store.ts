import { exportJWK, generateKeyPair, importJWK } from "jose";
import { join } from "node:path";
import { HostError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";
import { parseStrictJson } from "../../../lib/formats/strict-json.ts";
import type { Signer } from "../../../protocol/channel/jws.ts";
import { Ed25519PublicKey, thumbprint } from "../../../protocol/values/keys.ts";
import { Base64Url32 } from "../../../protocol/values/values.ts";

const PrivateJwk = Ed25519PublicKey.extend({ d: Base64Url32 });

export interface KeyPair extends Signer {
  readonly publicKey: Ed25519PublicKey;
}

/** Key files of the control plane, in a directory that only it can read. */
export interface KeyStore {
  /** Returns undefined if the file is missing: the root may be kept offline. */
  load(name: string): Promise<KeyPair | undefined>;
  create(name: string): Promise<KeyPair>;
  /** Replaces one key with another. */
  promote(from: string, to: string): Promise<void>;
}

/** @throws {HostError} `key-damaged` for a file that is not an Ed25519 private key */
export function keyStore(files: Files, directory: string): KeyStore {
  const pathOf = (name: string): string => join(directory, `${name}.jwk`);
  return {
    async load(name) {
      const text = await files.read(pathOf(name));
      return text === undefined ? undefined : readKey(pathOf(name), text);
    },
    async create(name) {
      const pair = await generateKeyPair("Ed25519", { extractable: true });
      const text = JSON.stringify(await exportJWK(pair.privateKey));
      await files.writeAtomic(pathOf(name), text, 0o600);
      return readKey(pathOf(name), text);
    },
    promote: (from, to) => files.move(pathOf(from), pathOf(to)),
  };
}

async function readKey(path: string, text: string): Promise<KeyPair> {
  try {
    const jwk = PrivateJwk.parse(parseStrictJson(text, { maxBytes: 4096, maxDepth: 4 }));
    const publicKey: Ed25519PublicKey = { kty: jwk.kty, crv: jwk.crv, x: jwk.x };
    const privateKey = await importJWK(jwk, "Ed25519");
    if (privateKey instanceof Uint8Array) throw new HostError("key-damaged", `${path} is not a private key`);
    return { kid: await thumbprint(publicKey), publicKey, privateKey };
  } catch (error) {
    throw new HostError("key-damaged", `${path} does not contain an Ed25519 private key`, {
      cause: error,
      details: { path },
    });
  }
}
