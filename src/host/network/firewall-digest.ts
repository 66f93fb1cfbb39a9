import { createHash } from "node:crypto";

/** What the comment of the table `inet holdfast` says of the text that was loaded. */
export function firewallDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
