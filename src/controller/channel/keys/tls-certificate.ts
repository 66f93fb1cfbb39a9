import { createPrivateKey, generateKeyPairSync, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { join } from "node:path";
import { HostError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";
import { selfSigned } from "../../../lib/formats/self-signed.ts";
import { sha256 } from "../../access/admin-key.ts";

/** Certificate of the server, and the hash by which nodes pin it. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  /** SHA-256 of the SubjectPublicKeyInfo (RFC 7469), base64url. */
  readonly pin: string;
}

const VALIDITY_MS = 10 * 365 * 24 * 3_600_000;
const RENEW_BEFORE_MS = 30 * 24 * 3_600_000;

/** Reads the operator's certificate. @throws {HostError} `certificate-unusable` naming the file */
export async function fileCertificate(files: Files, certPath: string, keyPath: string): Promise<ServerCertificate> {
  const [cert, key] = await Promise.all([files.read(certPath), files.read(keyPath)]);
  if (cert === undefined) throw new HostError("certificate-unusable", `${certPath} does not exist`);
  if (key === undefined) throw new HostError("certificate-unusable", `${keyPath} does not exist`);
  try {
    const parsed = new X509Certificate(cert);
    if (!parsed.checkPrivateKey(createPrivateKey(key))) {
      throw new HostError("certificate-unusable", `${keyPath} is not the key of ${certPath}`);
    }
    return { cert, key, pin: pinOf(parsed) };
  } catch (error) {
    if (error instanceof HostError) throw error;
    throw new HostError("certificate-unusable", `${certPath} or ${keyPath} is not PEM`, { cause: error });
  }
}

/**
 * Loads or creates a self-signed P-256 certificate. Renewal keeps the key, so that pins remain valid.
 * @throws {HostError} `key-damaged` if the key file has other content
 */
export async function selfSignedCertificate(
  files: Files,
  directory: string,
  hosts: readonly string[],
  now: number,
): Promise<ServerCertificate> {
  const keyPath = join(directory, "key.pem");
  const certPath = join(directory, "cert.pem");
  let key = await files.read(keyPath);
  if (key === undefined) {
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    key = privateKey.export({ type: "pkcs8", format: "pem" });
    await files.writeAtomic(keyPath, key, 0o600);
  }
  requirePrivateKey(keyPath, key);
  const stored = await files.read(certPath);
  if (stored !== undefined && isUsable(stored, key, hosts, now)) {
    return { cert: stored, key, pin: pinOf(new X509Certificate(stored)) };
  }
  const cert = await makeCertificate(key, hosts, now);
  await files.writeAtomic(certPath, cert, 0o600);
  return { cert, key, pin: pinOf(new X509Certificate(cert)) };
}

/** Rejects a damaged key instead of replacing it: a new one would break the pins of every license and node. */
function requirePrivateKey(path: string, pem: string): void {
  try {
    createPrivateKey(pem);
  } catch (error) {
    throw new HostError("key-damaged", `${path} does not contain a private key; restore it`, {
      cause: error,
      details: { path },
    });
  }
}

function pinOf(certificate: X509Certificate): string {
  return sha256(certificate.publicKey.export({ type: "spki", format: "der" }));
}

function isUsable(cert: string, key: string, hosts: readonly string[], now: number): boolean {
  try {
    const parsed = new X509Certificate(cert);
    return (
      parsed.checkPrivateKey(createPrivateKey(key)) &&
      parsed.validToDate.getTime() > now + RENEW_BEFORE_MS &&
      hosts.every((host) => (isIP(host) === 0 ? parsed.checkHost(host) : parsed.checkIP(host)) !== undefined)
    );
  } catch {
    return false;
  }
}

function makeCertificate(keyPem: string, hosts: readonly string[], now: number): Promise<string> {
  return selfSigned({
    key: createPrivateKey(keyPem),
    name: "holdfast controller",
    notBefore: new Date(now - 24 * 3_600_000),
    notAfter: new Date(now + VALIDITY_MS),
    hosts,
  });
}
