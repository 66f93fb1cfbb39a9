import { hash, randomBytes } from "node:crypto";
import { join } from "node:path";
import { HostError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { Base64Url32 } from "../../protocol/values/values.ts";

/** Storage of the operator's API key hash. */
export interface AdminKeyHash {
  get(): Promise<string | undefined>;
  set(hash: string): Promise<void>;
}

/** Returns SHA-256 as base64url: the only stored form of API keys, tokens and tickets. */
export function sha256(data: string | Uint8Array): string {
  return hash("sha256", data, "base64url");
}

/**
 * Creates the operator's API key at the first start, in `DIR/admin.key` (0600). The database stores only its hash.
 * @throws {HostError} `key-damaged` if the file has other content
 */
export async function ensureAdminKey(
  files: Files,
  dataDir: string,
  stored: AdminKeyHash,
): Promise<{ readonly hash: string; readonly path: string; readonly isNew: boolean }> {
  const path = join(dataDir, "admin.key");
  const known = await stored.get();
  if (known !== undefined) return { hash: known, path, isNew: false };
  // A file without a stored hash is from an interrupted start or a lost database.
  const existing = (await files.read(path))?.trim();
  if (existing !== undefined && !Base64Url32.safeParse(existing).success) {
    throw new HostError("key-damaged", `${path} does not contain an API key; remove the file or restore it`, {
      details: { path },
    });
  }
  const key = existing ?? randomBytes(32).toString("base64url");
  if (existing === undefined) await files.writeAtomic(path, `${key}\n`, 0o600);
  const hash = sha256(key);
  await stored.set(hash);
  return { hash, path, isNew: existing === undefined };
}
