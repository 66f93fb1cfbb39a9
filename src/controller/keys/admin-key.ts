import { createHash, randomBytes } from "node:crypto";
import { join } from "node:path";
import { HostError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { Base64Url32 } from "../../protocol/values/values.ts";

/** Where the hash of the first API key is kept. */
export interface AdminKeyHash {
  get(): string | undefined;
  set(hash: string): void;
}

/** SHA-256 as base64url: the only form in which API keys, tokens and tickets are stored. */
export function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("base64url");
}

/**
 * Makes the operator's API key at the first start, in `DIR/admin.key` (0600); the database holds its hash alone.
 * @throws {HostError} `key-damaged` when the file holds something else.
 */
export async function ensureAdminKey(
  files: Files,
  dataDir: string,
  stored: AdminKeyHash,
): Promise<{ readonly hash: string; readonly path: string; readonly isNew: boolean }> {
  const path = join(dataDir, "admin.key");
  const known = stored.get();
  if (known !== undefined) return { hash: known, path, isNew: false };
  // A file without a hash is the key of a start that was cut off, or of a database that was lost.
  const left = (await files.read(path))?.trim();
  if (left !== undefined && !Base64Url32.safeParse(left).success) {
    throw new HostError("key-damaged", `${path} does not hold an API key`, { details: { path } });
  }
  const key = left ?? randomBytes(32).toString("base64url");
  if (left === undefined) await files.writeAtomic(path, `${key}\n`, 0o600);
  const hash = sha256(key);
  stored.set(hash);
  return { hash, path, isNew: left === undefined };
}
