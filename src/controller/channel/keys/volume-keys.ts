import { hkdfSync, randomBytes } from "node:crypto";
import { HostError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";
import { Base64Url32 } from "../../../protocol/values/values.ts";

/** Keys of encrypted volumes, derived from one key (HKDF, RFC 5869), so that none is stored and they never change. */
export interface VolumeKeys {
  /** Returns 32 bytes as base64url; unique per node and volume name. */
  of(uid: string, volume: string): string;
}

/**
 * Loads or creates the root key, a file that only the controller can read. Without it the contents of the volumes are lost.
 * @throws {HostError} `key-damaged` if it has other content
 */
export async function volumeKeys(files: Files, path: string): Promise<VolumeKeys> {
  const stored = (await files.read(path))?.trim();
  if (stored !== undefined && !Base64Url32.safeParse(stored).success) {
    throw new HostError("key-damaged", `${path} does not contain a key of 32 bytes`, { details: { path } });
  }
  const key = stored ?? randomBytes(32).toString("base64url");
  if (stored === undefined) await files.writeAtomic(path, `${key}\n`, 0o600);
  const root = Buffer.from(key, "base64url");
  return {
    // Volume names contain no slash, so the text is unambiguous.
    of: (uid, volume) =>
      Buffer.from(hkdfSync("sha256", root, "", `holdfast volume ${uid}/${volume}`, 32)).toString("base64url"),
  };
}
