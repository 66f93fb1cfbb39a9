import { randomUUID } from "node:crypto";
import { jwtVerify, SignJWT, type CryptoKey } from "jose";
import type { Clock } from "../../host/clock.ts";

/** Whom an access token stands for. */
export interface TokenSubject {
  readonly user: string;
  readonly clientId: string;
}

/** Makes and checks access tokens. */
export interface TokenIssuer {
  /** A signed token (RFC 9068) and how long it holds. */
  issue(subject: TokenSubject): Promise<{ readonly token: string; readonly expiresInSeconds: number }>;
  /** Whom the token stands for; undefined when the signature, issuer, audience or a time does not hold. */
  verify(token: string): Promise<TokenSubject | undefined>;
}

export interface TokenIssuerOptions {
  /** Both `iss` and `aud`: the controller's origin. */
  readonly origin: string;
  /** An Ed25519 key that signs nothing else. */
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly clock: Clock;
}

const LIFETIME_SECONDS = 3600;
const TYPE = "at+jwt"; // RFC 9068 §2.1
const ALGORITHM = "EdDSA"; // RFC 8037

/** Access tokens as JWTs signed with EdDSA, for one hour. */
export function jwtIssuer(options: TokenIssuerOptions): TokenIssuer {
  const { origin, privateKey, publicKey, clock } = options;
  return {
    async issue({ user, clientId }) {
      const now = Math.floor(clock.now() / 1000);
      const token = await new SignJWT({ client_id: clientId })
        .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
        .setIssuer(origin)
        .setAudience(origin)
        .setSubject(user)
        .setJti(randomUUID())
        .setIssuedAt(now)
        .setExpirationTime(now + LIFETIME_SECONDS)
        .sign(privateKey);
      return { token, expiresInSeconds: LIFETIME_SECONDS };
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
        // Why a token does not hold is nothing to tell its bearer.
        return undefined;
      }
    },
  };
}
