import { createPublicKey, generateKeyPairSync, sign, type KeyObject } from "node:crypto";

/** Certificate of a TLS end and its private key, in PEM. */
export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

/** A key of P-256. */
export function aKey(): KeyObject {
  return generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
}

/** A certificate that the key signed itself (RFC 5280 §4.1): no more in it than TLS asks for. */
export function certificateOf(privateKey: KeyObject): Certificate {
  const algorithm = sequence(Buffer.from("06082a8648ce3d040302", "hex")); // ecdsa-with-SHA256
  const name = sequence(
    der(0x31, sequence(Buffer.from("0603550403", "hex"), der(0x0c, Buffer.from("bench")))), // CN
  );
  const validity = sequence(der(0x17, Buffer.from("250101000000Z")), der(0x17, Buffer.from("490101000000Z")));
  const version = der(0xa0, der(0x02, Buffer.from([2])));
  const publicKey = createPublicKey(privateKey).export({ type: "spki", format: "der" });
  const body = sequence(version, der(0x02, Buffer.from([1])), algorithm, name, validity, name, publicKey);
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, privateKey));
  const lines = sequence(body, algorithm, signature)
    .toString("base64")
    .replaceAll(/.{64}/g, (line) => `${line}\n`);
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  };
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, ...parts);
}

/** One element of X.690: tag, length, content. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const length = content.length;
  const head = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...head]), content]);
}
