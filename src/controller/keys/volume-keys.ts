import { hkdfSync, randomBytes } from "node:crypto";
import { HostError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { Base64Url32 } from "../../protocol/values/values.ts";

/** Keys of the encrypted volumes of nodes: computed from one (HKDF, RFC 5869), so that none is stored, and the same for ever. */
export interface VolumeKeys {
  /** 32 bytes as base64url; each node has its own for a volume of the same name. */
  of(uid: string, volume: string): string;
}

/**
 * Loads or makes the key that all come from, a file that only the controller can read; without it what the volumes hold is lost.
 * @throws {HostError} `key-damaged` when it holds something else.
 */
export async function volumeKeys(files: Files, path: string): Promise<VolumeKeys> {
  const stored = (await files.read(path))?.trim();
  if (stored !== undefined && !Base64Url32.safeParse(stored).success) {
    throw new HostError("key-damaged", `${path} does not hold a key of 32 bytes`, { details: { path } });
  }
  const key = stored ?? randomBytes(32).toString("base64url");
  if (stored === undefined) await files.writeAtomic(path, `${key}\n`, 0o600);
  const root = Buffer.from(key, "base64url");
  return {
    // No name of a volume holds a slash, so no two of them are told by the same text.
    of: (uid, volume) =>
      Buffer.from(hkdfSync("sha256", root, "", `holdfast volume ${uid}/${volume}`, 32)).toString("base64url"),
  };
}
