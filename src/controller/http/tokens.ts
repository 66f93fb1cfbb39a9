import { randomUUID } from "node:crypto";
import { jwtVerify, SignJWT, type CryptoKey } from "jose";
import type { Clock } from "../../host/clock.ts";

/** Subject of an access token. */
export interface TokenSubject {
  readonly user: string;
  readonly clientId: string;
}

export interface IssuedToken {
  readonly token: string;
  readonly expiresInSeconds: number;
  readonly expiresAt: number;
}

export interface TokenIssuer {
  /** Returns a signed token (RFC 9068) that is valid for these seconds, an hour by default, and when it ends, in Unix seconds. */
  issue(subject: TokenSubject, lifetimeSeconds?: number): Promise<IssuedToken>;
  /** Returns the subject of a token; undefined if the signature, issuer, audience or a time is invalid. */
  verify(token: string): Promise<TokenSubject | undefined>;
}

export interface TokenIssuerOptions {
  /** Origin of the controller: both `iss` and `aud`. */
  readonly origin: string;
  /** Ed25519 key used only for access tokens. */
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly clock: Clock;
}

const LIFETIME_SECONDS = 3600;
const TYPE = "at+jwt"; // RFC 9068 §2.1
const ALGORITHM = "EdDSA"; // RFC 8037

/** Issues and verifies access tokens: JWTs signed with EdDSA. */
export function jwtIssuer(options: TokenIssuerOptions): TokenIssuer {
  const { origin, privateKey, publicKey, clock } = options;
  return {
    async issue({ user, clientId }, lifetimeSeconds = LIFETIME_SECONDS) {
      const now = Math.floor(clock.now() / 1000);
      const token = await new SignJWT({ client_id: clientId })
        .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
        .setIssuer(origin)
        .setAudience(origin)
        .setSubject(user)
        .setJti(randomUUID())
        .setIssuedAt(now)
        .setExpirationTime(now + lifetimeSeconds)
        .sign(privateKey);
      return { token, expiresInSeconds: lifetimeSeconds, expiresAt: now + lifetimeSeconds };
    },
    async verify(token) {
      try {
        const { payload } = await jwtVerify(token, publicKey, {
          algorithms: [ALGORITHM],
          typ: TYPE,
          issuer: origin,
          audience: origin,
          currentDate: new Date(clock.now()),
          requiredClaims: ["sub", "exp", "iat", "client_id"],
        });
        const { sub, client_id: clientId } = payload;
        return typeof sub === "string" && typeof clientId === "string" ? { user: sub, clientId } : undefined;
      } catch {
        // The bearer does not learn why a token is invalid.
        return undefined;
      }
    },
  };
}
