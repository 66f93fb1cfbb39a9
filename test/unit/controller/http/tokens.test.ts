import { SignJWT, generateKeyPair } from "jose";
import { describe, expect, it } from "vitest";
import { jwtIssuer } from "../../../../src/controller/http/tokens.ts";
import { systemClock } from "../../../../src/host/clock.ts";

const ORIGIN = "https://cp.example.net";
const subject = { user: "bot", clientId: "client-1" };
const { privateKey, publicKey } = await generateKeyPair("EdDSA", { crv: "Ed25519" });
const clock = systemClock();
const issuer = jwtIssuer({ origin: ORIGIN, privateKey, publicKey, clock });

function sign(change: { typ?: string; iss?: string; aud?: string; claims?: Record<string, unknown>; exp?: string }) {
  const jwt = new SignJWT({ client_id: "client-1", ...change.claims })
    .setProtectedHeader({ alg: "EdDSA", typ: change.typ ?? "at+jwt" })
    .setIssuer(change.iss ?? ORIGIN)
    .setAudience(change.aud ?? ORIGIN)
    .setSubject("bot")
    .setIssuedAt();
  return (change.exp === "" ? jwt : jwt.setExpirationTime(change.exp ?? "1h")).sign(privateKey);
}

describe("an access token", () => {
  it("verifies where it was made", async () => {
    const { token, expiresInSeconds } = await issuer.issue(subject);
    expect(expiresInSeconds).toBe(3600);
    expect(await issuer.verify(token)).toEqual(subject);
    expect(await issuer.verify(await sign({}))).toEqual(subject);
  });

  it.each([
    ["another type", { typ: "holdfast-license+jwt" }],
    ["another issuer", { iss: "https://other.example.net" }],
    ["another audience", { aud: "https://other.example.net" }],
    ["no client", { claims: { client_id: 7 } }],
    ["no end", { exp: "" }],
    ["an end in the past", { exp: "-1s" }],
  ])("does not verify with %s", async (_, change) => {
    expect(await issuer.verify(await sign(change))).toBeUndefined();
  });

  it("does not verify at another control plane with the same key", async () => {
    const other = jwtIssuer({ origin: "https://other.example.net", privateKey, publicKey, clock });
    expect(await other.verify((await issuer.issue(subject)).token)).toBeUndefined();
  });
});
