import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { HostError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";
import { Base64Url32 } from "../../../protocol/values/values.ts";

/** Tokens for bandwidth tests of nodes, derived from a key, so that none is stored. */
export interface SpeedTestTokens {
  of(uid: string): string;
  /** Returns the node of a token; undefined if it is invalid. */
  uidOf(token: string): string | undefined;
}

/**
 * Loads or creates the key of the tokens, a file that only the controller can read.
 * @throws {HostError} `key-damaged` if it has other content
 */
export async function speedTestTokens(files: Files, path: string): Promise<SpeedTestTokens> {
  const stored = (await files.read(path))?.trim();
  if (stored !== undefined && !Base64Url32.safeParse(stored).success) {
    throw new HostError("key-damaged", `${path} does not contain a key of 32 bytes`, { details: { path } });
  }
  const key = stored ?? randomBytes(32).toString("base64url");
  if (stored === undefined) await files.writeAtomic(path, `${key}\n`, 0o600);
  const of = (uid: string): string => `${uid}.${createHmac("sha256", key).update(uid).digest("base64url")}`;
  return {
    of,
    uidOf(token) {
      const [uid = ""] = token.split(".", 1);
      const [given, expected] = [Buffer.from(token), Buffer.from(of(uid))];
      return given.byteLength === expected.byteLength && timingSafeEqual(given, expected) ? uid : undefined;
    },
  };
}

/** Path of nodes' bandwidth tests; ends in a token that only the node's document contains. */
export const SPEED_TEST_PATH = "/agent/v1/speedtest";
