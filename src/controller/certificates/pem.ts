import { createPrivateKey, X509Certificate } from "node:crypto";
import { toError } from "../../errors.ts";
import { Violations } from "../http/problem.ts";
import { CertificateName, type CertificateInfo, type CertificateWarning } from "./records.ts";

const MAX_CERTIFICATES = 16;
const EXPIRING_MS = 90 * 86_400_000;
/** Base64 has no dash, so that a text of beginnings alone is not searched to its end for each. */
const BLOCK = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** Parts of a certificate as clients write them, in PEM. */
export interface CertificateParts {
  /** The certificate, then its issuers; each text may hold several. */
  readonly certificates: readonly { readonly field: string; readonly text: string }[];
  readonly privateKey: { readonly field: string; readonly text: string };
}

/**
 * Checks a certificate and its key, and returns the chain in PEM and the first DNS name.
 * @throws {Violations} naming the field
 */
export function checkCertificate(parts: CertificateParts): {
  readonly chain: string;
  readonly name: string | undefined;
} {
  const chain: X509Certificate[] = [];
  for (const { field, text } of parts.certificates) {
    const blocks = text.match(BLOCK) ?? [];
    if (blocks.length === 0) throw new Violations([`${field}: has no certificate in PEM`]);
    for (const block of blocks) chain.push(parsed(field, block));
    if (chain.length > MAX_CERTIFICATES) throw new Violations([`${field}: more than ${MAX_CERTIFICATES} certificates`]);
  }
  const [leaf] = chain;
  if (leaf === undefined) throw new Violations(["certificateBody: is required"]);
  const { field, text } = parts.privateKey;
  if (!leaf.checkPrivateKey(privateKeyOf(field, text))) {
    throw new Violations([`${field}: does not belong to the certificate for ${leaf.subject.replaceAll("\n", ", ")}`]);
  }
  const name = /(?:^|, )DNS:([^,"]+)/.exec(leaf.subjectAltName ?? "")?.[1];
  return { chain: chain.map(String).join(""), name: CertificateName.safeParse(name).data };
}

function parsed(field: string, block: string): X509Certificate {
  try {
    return new X509Certificate(block);
  } catch (error) {
    throw new Violations([`${field}: not a certificate: ${reasonOf(error)}`]);
  }
}

function privateKeyOf(field: string, text: string) {
  try {
    return createPrivateKey(text);
  } catch (error) {
    const hint = /ENCRYPTED/.test(text)
      ? "is encrypted; remove its passphrase"
      : `not a private key: ${reasonOf(error)}`;
    throw new Violations([`${field}: ${hint}`]);
  }
}

/** Returns the reason of OpenSSL without its code. */
const reasonOf = (error: unknown): string => toError(error).message.split(":").at(-1)?.trim() ?? "unreadable";

/** Describes a stored certificate at a time in Unix milliseconds. */
export function certificateInfo(
  { fqdn, chain }: { readonly fqdn: string; readonly chain: string },
  nowMs: number,
): CertificateInfo {
  const leaf = new X509Certificate(chain);
  const expiresMs = leaf.validToDate.getTime();
  return { fqdn, expiresAt: Math.floor(expiresMs / 1000), warning: warningOf(leaf, fqdn, expiresMs - nowMs) };
}

function warningOf(leaf: X509Certificate, fqdn: string, remainingMs: number): CertificateWarning {
  if (remainingMs <= 0) return "expired";
  // A wildcard is checked by one of the names that it covers.
  if (leaf.checkHost(fqdn.replace(/^\*\./, "a.")) === undefined) return "name-mismatch";
  return remainingMs < EXPIRING_MS ? "expiring" : "none";
}
