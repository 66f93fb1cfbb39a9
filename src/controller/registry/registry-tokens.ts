import { createPrivateKey, randomBytes, randomUUID, X509Certificate } from "node:crypto";
import { jwtVerify, SignJWT } from "jose";
import type { Clock } from "../../host/clock.ts";

/** Access of a token, as in the Docker registry token specification. */
export interface RegistryAccess {
  readonly type: "repository" | "registry";
  readonly name: string;
  readonly actions: readonly string[];
}

/** Credential of a node for one repository. */
export interface PullCredential {
  readonly username: string;
  readonly password: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

/** Issues registry tokens, and the credentials that nodes exchange for them. */
export interface RegistryTokens {
  /** Returns a signed token for the registry, and its lifetime in seconds. */
  issue(
    subject: string,
    access: readonly RegistryAccess[],
  ): Promise<{ readonly token: string; readonly expiresIn: number }>;
  /** Returns a credential with which a node may pull from one repository, valid for one hour. */
  credential(uid: string, repository: string): Promise<PullCredential>;
  /** Returns the node of a credential; undefined if it is invalid or expired. */
  bearerOf(
    username: string,
    password: string,
  ): Promise<{ readonly uid: string; readonly repository: string } | undefined>;
}

export interface RegistryTokensOptions {
  /** PEM: a P-256 key and its certificate, which the registry uses as `rootcertbundle`. */
  readonly key: string;
  readonly cert: string;
  readonly clock: Clock;
}

/** Values required in the registry's configuration under `auth.token`. */
export const REGISTRY_SERVICE = "holdfast-registry";
const REGISTRY_ISSUER = "holdfast";
/** Lifetime of a token; a registry requests a new one during a long pull. */
const TOKEN_SECONDS = 300;
/** Lifetime of a credential, sufficient for a large image over a slow link. */
const CREDENTIAL_MS = 3_600_000;
const CREDENTIAL_ALGORITHM = "HS256";

/** Issues tokens as JWTs signed with ES256; credentials become invalid when this process ends. */
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
        // The registry's clock may be up to 60 s behind.
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
