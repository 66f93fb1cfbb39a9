import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";

/** Trusts Node's authorities, those that its environment adds, and the system's; reading the last takes a third of a second. */
export function everyAuthorityContext(): SecureContext {
  const kinds = ["bundled", "extra", "system"] as const;
  return createSecureContext({ ca: [...new Set(kinds.flatMap((kind) => getCACertificates(kind)))] });
}
