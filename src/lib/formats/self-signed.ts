import { createPublicKey, randomBytes, type KeyObject } from "node:crypto";
import { isIP } from "node:net";
import { installReflectMetadata } from "../reflect-metadata.ts";

export interface SelfSigned {
  /** A private P-256 key. */
  readonly key: KeyObject;
  /** The common name of subject and issuer. */
  readonly name: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** DNS names and addresses of the certificate (RFC 5280 §4.2.1.6). */
  readonly hosts?: readonly string[];
}

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** Creates a self-signed certificate in PEM. */
export async function selfSigned({ key, name, notBefore, notAfter, hosts = [] }: SelfSigned): Promise<string> {
  // Loaded on demand: the library is large and certificates are rarely created.
  installReflectMetadata();
  const { SubjectAlternativeNameExtension, X509CertificateGenerator } = await import("@peculiar/x509");
  const names = hosts.map((value) => ({ type: isIP(value) === 0 ? ("dns" as const) : ("ip" as const), value }));
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: randomBytes(16).toString("hex"),
    name: `CN=${name}`,
    notBefore,
    notAfter,
    signingAlgorithm: ALGORITHM,
    keys: {
      privateKey: key.toCryptoKey(ALGORITHM, true, ["sign"]),
      publicKey: createPublicKey(key).toCryptoKey(ALGORITHM, true, ["verify"]),
    },
    extensions: names.length === 0 ? [] : [new SubjectAlternativeNameExtension(names)],
  });
  return certificate.toString("pem");
}
