import { z } from "zod";
import type { NodeKeys } from "../../protocol/values/keys.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Names under which a node itself registers keys. */
const RESERVED: ReadonlySet<string> = new Set(["auth", "identity", "overlay", "wireguard"]);
const MAX_KEYS = 32;
/** A node is read with all its keys. */
const MAX_KEY_CHARS = 4096;

/** Name of a key that a client keeps for a node. */
export const KeyName = z
  .string()
  .regex(/^[a-z0-9-]{1,64}$/, "must be 1 to 64 lower-case letters, digits and '-'")
  .refine((name) => !RESERVED.has(name), "is the name of a key of the node itself");

/** X25519 public key that a client keeps for a node: base64 with padding, or base64url without. Kept as written. */
export const ClientKey = z
  .looseObject({
    kty: z.enum(["EC", "OKP"]),
    crv: z.literal("X25519"),
    x: z.string().regex(/^(?:[A-Za-z0-9+/]{43}=|[A-Za-z0-9_-]{43})$/, "must be 32 bytes in base64 or base64url"),
    kid: z.string().max(256).optional(),
  })
  .refine((key) => JSON.stringify(key).length <= MAX_KEY_CHARS, `must not be longer than ${MAX_KEY_CHARS} as JSON`)
  .meta({ id: "ClientKey" });
export const ClientKeys = z.record(z.string(), ClientKey);
export type ClientKeys = Readonly<z.infer<typeof ClientKeys>>;

/** Reports whether one more key can be kept. */
export const hasRoomFor = (keys: ClientKeys, name: string): boolean =>
  Object.hasOwn(keys, name) || Object.keys(keys).length < MAX_KEYS;

/** Form of public keys in the API: base64 text, or JSON Web Keys (RFC 7517). */
export const KeyForm = z.enum(["text", "jwk"]);
export type KeyForm = z.infer<typeof KeyForm>;

/** Public keys of a node itself, in both forms. */
export interface OwnKeys {
  readonly jwk: NodeKeys;
  readonly text: Readonly<Record<"identity" | "overlay" | "wireguard", string>>;
}

/** Returns the keys of a node in both forms: many lists show the same keys. */
export function ownKeys(jwk: NodeKeys): OwnKeys {
  const { x, y } = jwk.overlay;
  const point = Buffer.concat([Buffer.of(4), Buffer.from(x, "base64url"), Buffer.from(y, "base64url")]);
  const text = {
    identity: base64(jwk.auth.x),
    overlay: point.toString("base64"),
    wireguard: base64(jwk.wireguard.x),
  };
  return { jwk, text };
}

/**
 * Returns the public keys of a node by purpose, with those that clients keep. As text, Ed25519 and X25519 keys are their 32 bytes and
 * the P-256 key is the uncompressed point (SEC 1); as JWK, WireGuard's is `EC` with padded base64, as `wg` prints it.
 */
export function shownKeys(
  { jwk, text }: OwnKeys,
  clients: ClientKeys | undefined,
  form: KeyForm,
): Readonly<Record<string, string | JsonObject>> {
  if (form === "jwk") {
    return {
      ...clients,
      identity: jwk.auth,
      overlay: jwk.overlay,
      wireguard: { kty: "EC", crv: "X25519", x: text.wireguard },
    };
  }
  if (clients === undefined) return text;
  return { ...Object.fromEntries(Object.entries(clients).map(([name, key]) => [name, key.x])), ...text };
}

/** Returns 32 bytes in base64url (RFC 4648 §5) as base64 with padding. */
const base64 = (text: string): string => `${text.replaceAll("-", "+").replaceAll("_", "/")}=`;
