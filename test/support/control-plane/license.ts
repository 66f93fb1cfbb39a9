import type { License } from "../../../src/protocol/documents/claims.ts";

export const licenseClaims: License = {
  iss: "http://127.0.0.1:8480",
  jti: "0197f1a2-0000-7000-8000-000000000001",
  name: "edge-1",
  domain: "example.net",
  org: "0197f1a2-0000-7000-8000-0000000000aa",
  type: "Agent",
  iat: 1_800_000_000,
  exp: 1_800_086_400,
  root: "r".repeat(43),
  spki: [],
};

const HEADER = { alg: "Ed25519", typ: "holdfast-license+jwt", kid: "k".repeat(43) };

/** A well-formed license with an invalid signature. */
export function someLicense(claims: object = {}, header: object = HEADER): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  return [part(header), part({ ...licenseClaims, ...claims }), "c2lnbmF0dXJl"].join(".");
}
