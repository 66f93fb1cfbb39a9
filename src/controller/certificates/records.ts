import { z } from "zod";

/** Name of a certificate: a DNS name, perhaps a wildcard. */
export const CertificateName = z
  .string()
  .max(253)
  .regex(/^(?:\*\.)?[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*$/, "must be a DNS name");

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
