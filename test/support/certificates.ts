import { createHash, generateKeyPairSync, randomBytes, type webcrypto } from "node:crypto";
import { isIP } from "node:net";
import type * as X509 from "@peculiar/x509";

export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
  /** base64url SHA-256 of the SubjectPublicKeyInfo. */
  readonly pin: string;
  readonly parsed: X509.X509Certificate;
  readonly signingKey: webcrypto.CryptoKey;
}

interface CertificateRequest {
  readonly hosts: readonly string[];
  readonly isExpired?: boolean;
  readonly issuer?: TestCertificate;
  readonly isAuthority?: boolean;
}

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const DAY_MS = 86_400_000;

/** Makes a P-256 certificate: signed by itself, or by an issuer. */
export async function testCertificate({
  hosts,
  isExpired = false,
  issuer,
  isAuthority = false,
}: CertificateRequest): Promise<TestCertificate> {
  const x509 = await library();
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const keys = {
    privateKey: privateKey.toCryptoKey(ALGORITHM, true, ["sign"]),
    publicKey: publicKey.toCryptoKey(ALGORITHM, true, ["verify"]),
  };
  const name = isAuthority ? "CN=test authority" : "CN=test server";
  const names = hosts.map((host) => ({ type: isIP(host) === 0 ? ("dns" as const) : ("ip" as const), value: host }));
  const end = Date.now() + (isExpired ? -DAY_MS : DAY_MS);
  const parsed = await x509.X509CertificateGenerator.create({
    serialNumber: randomBytes(8).toString("hex"),
    subject: name,
    issuer: issuer?.parsed.subject ?? name,
    notBefore: new Date(end - 10 * DAY_MS),
    notAfter: new Date(end),
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey: issuer?.signingKey ?? keys.privateKey,
    extensions: [
      new x509.BasicConstraintsExtension(isAuthority, undefined, true),
      ...(names.length === 0 ? [] : [new x509.SubjectAlternativeNameExtension(names)]),
    ],
  });
  return {
    cert: parsed.toString("pem"),
    key: privateKey.export({ type: "pkcs8", format: "pem" }),
    pin: createHash("sha256")
      .update(publicKey.export({ type: "spki", format: "der" }))
      .digest("base64url"),
    parsed,
    signingKey: keys.privateKey,
  };
}

/** Loads the certificate library, whose injector needs metadata functions that nothing here uses. */
async function library(): Promise<typeof X509> {
  if (!("getMetadata" in Reflect)) {
    const nothing = { getMetadata: () => undefined, getOwnMetadata: () => undefined, defineMetadata: () => undefined };
    Object.assign(Reflect, nothing);
  }
  return import("@peculiar/x509");
}
