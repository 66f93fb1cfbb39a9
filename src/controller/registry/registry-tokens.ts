import { createPrivateKey, randomBytes, randomUUID, X509Certificate } from "node:crypto";
import { jwtVerify, SignJWT } from "jose";
import type { Clock } from "../../host/clock.ts";

/** What a token lets its bearer do, as the Docker registry token specification spells it. */
export interface RegistryAccess {
  readonly type: "repository" | "registry";
  readonly name: string;
  readonly actions: readonly string[];
}

/** A node's credential for one repository. */
export interface PullCredential {
  readonly username: string;
  readonly password: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

/** Makes what a registry with token authentication accepts, and the credentials that nodes get such tokens for. */
export interface RegistryTokens {
  /** A signed token for the registry, and how many seconds it holds. */
  issue(
    subject: string,
    access: readonly RegistryAccess[],
  ): Promise<{ readonly token: string; readonly expiresIn: number }>;
  /** A credential with which one node may pull from one repository for a while. */
  credential(uid: string, repository: string): Promise<PullCredential>;
  /** Whose credential it is; undefined when it is none, or none any more. */
  bearerOf(
    username: string,
    password: string,
  ): Promise<{ readonly uid: string; readonly repository: string } | undefined>;
}

export interface RegistryTokensOptions {
  /** PEM: a P-256 key and its certificate, which the registry has as its `rootcertbundle`. */
  readonly key: string;
  readonly cert: string;
  readonly clock: Clock;
}

/** What the registry's configuration has to say under `auth.token`. */
export const REGISTRY_SERVICE = "holdfast-registry";
export const REGISTRY_ISSUER = "holdfast";
/** A registry asks for a new one in the middle of a long pull. */
const TOKEN_SECONDS = 300;
/** As long as a large image may take over a slow line. */
const CREDENTIAL_MS = 3_600_000;
const CREDENTIAL_ALGORITHM = "HS256";

/** Tokens as JWTs signed with ES256; credentials hold until this process ends, at the longest. */
export function registryTokens({ key, cert, clock }: RegistryTokensOptions): RegistryTokens {
  const privateKey = createPrivateKey(key);
  const chain = [new X509Certificate(cert).raw.toString("base64")];
  const secret = randomBytes(32);
  const nowSeconds = (): number => Math.floor(clock.now() / 1000);
  return {
    async issue(subject, access) {
      const now = nowSeconds();
      const token = await new SignJWT({ access })
        .setProtectedHeader({ alg: "ES256", typ: "JWT", x5c: chain })
        .setIssuer(REGISTRY_ISSUER)
        .setAudience(REGISTRY_SERVICE)
        .setSubject(subject)
        .setJti(randomUUID())
        .setIssuedAt(now)
        // The registry's clock may be somewhat behind.
        .setNotBefore(now - 60)
        .setExpirationTime(now + TOKEN_SECONDS)
        .sign(privateKey);
      return { token, expiresIn: TOKEN_SECONDS };
    },
    async credential(uid, repository) {
      const expiresAt = clock.now() + CREDENTIAL_MS;
      const password = await new SignJWT({ repository })
        .setProtectedHeader({ alg: CREDENTIAL_ALGORITHM })
        .setSubject(uid)
        .setExpirationTime(Math.floor(expiresAt / 1000))
        .sign(secret);
      return { username: uid, password, expiresAt };
    },
    async bearerOf(username, password) {
      try {
        const { payload } = await jwtVerify(password, secret, {
          algorithms: [CREDENTIAL_ALGORITHM],
          subject: username,
          currentDate: new Date(clock.now()),
          requiredClaims: ["exp", "repository"],
        });
        const { repository } = payload;
        return typeof repository === "string" ? { uid: username, repository } : undefined;
      } catch {
        return undefined;
      }
    },
  };
}
