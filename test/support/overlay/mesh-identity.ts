import { generateKeyPairSync, randomUUID, X509Certificate } from "node:crypto";
import { installReflectMetadata } from "../../../src/lib/reflect-metadata.ts";
import { meshContext, p256Thumbprint, type MeshIdentity } from "../../../src/overlay/mesh/transport/tls.ts";
import { OverlayIdentity } from "../../../src/protocol/overlay/mesh.ts";
import { testCertificate } from "../certificates.ts";

/** A new overlay key, in the agent's form. */
export function overlayIdentity(uid: string = randomUUID()): OverlayIdentity {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return OverlayIdentity.parse({ uid, key: privateKey.export({ format: "jwk" }) });
}

/** Returns the identity of a node with a new key. */
export async function meshIdentity(uid: string = randomUUID()): Promise<MeshIdentity> {
  const { key, cert } = await testCertificate({ hosts: [] });
  const thumbprint = p256Thumbprint(new X509Certificate(cert).publicKey);
  if (thumbprint === undefined) throw new Error("not a P-256 key");
  return { uid, key: thumbprint, context: meshContext(key, cert) };
}

const kinds = {
  RSA: {
    make: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
    algorithm: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  },
  "P-384": {
    make: () => generateKeyPairSync("ec", { namedCurve: "P-384" }),
    algorithm: { name: "ECDSA", namedCurve: "P-384", hash: "SHA-256" },
  },
} as const;

/** A certificate with a key that no node can have. */
export async function foreignCertificate(
  kind: keyof typeof kinds,
): Promise<{ readonly cert: string; readonly key: string }> {
  installReflectMetadata();
  const { X509CertificateGenerator } = await import("@peculiar/x509");
  const { make, algorithm } = kinds[kind];
  const { privateKey, publicKey } = make();
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: "01",
    name: "CN=foreign",
    notBefore: new Date(0),
    notAfter: new Date("9999-12-31T23:59:59Z"),
    signingAlgorithm: algorithm,
    keys: {
      privateKey: privateKey.toCryptoKey(algorithm, true, ["sign"]),
      publicKey: publicKey.toCryptoKey(algorithm, true, ["verify"]),
    },
  });
  return { cert: certificate.toString("pem"), key: privateKey.export({ type: "pkcs8", format: "pem" }) };
}
