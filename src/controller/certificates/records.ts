/** A certificate with its private key, in PEM. */
export interface CertificateRecord {
  /** Name under which configuration refers to it. */
  readonly fqdn: string;
  /** The certificate and the rest of its chain. */
  readonly chain: string;
  readonly privateKey: string;
  /** Warning that the latest event reported. */
  readonly reported: CertificateWarning;
}

export const WARNINGS = ["none", "expiring", "expired", "name-mismatch"] as const;
export type CertificateWarning = (typeof WARNINGS)[number];

/** A certificate without its contents; `expiresAt` in Unix seconds. */
export interface CertificateInfo {
  readonly fqdn: string;
  readonly expiresAt: number;
  readonly warning: CertificateWarning;
}
