import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";

/** Trusts the authorities of Node, of its environment, and of the system; reading the last takes 300 ms. */
export function everyAuthorityContext(): SecureContext {
  const kinds = ["bundled", "extra", "system"] as const;
  return createSecureContext({ ca: [...new Set(kinds.flatMap((kind) => getCACertificates(kind)))] });
}
