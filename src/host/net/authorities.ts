import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";

/** Codes of TLS errors for a certificate that no trusted authority has issued. */
export const UNKNOWN_ISSUER: ReadonlySet<string> = new Set([
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
]);

/** Returns the authorities of Node, of its environment, and of the system, in PEM; reading the last takes 300 ms. */
export function everyAuthority(): string[] {
  const kinds = ["bundled", "extra", "system"] as const;
  return [...new Set(kinds.flatMap((kind) => getCACertificates(kind)))];
}

/** Returns a context that trusts all of `everyAuthority`. */
export function everyAuthorityContext(): SecureContext {
  return createSecureContext({ ca: everyAuthority() });
}
