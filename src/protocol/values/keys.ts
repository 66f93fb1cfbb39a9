import { calculateJwkThumbprint } from "jose";
import { z } from "zod";
import { Base64Url32 } from "./values.ts";

/** Ed25519 public key (RFC 8037): node `auth`, control plane `root` and `signing`. */
export const Ed25519PublicKey = z.object({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: Base64Url32 });
export type Ed25519PublicKey = z.infer<typeof Ed25519PublicKey>;

/** X25519 public key (RFC 8037): node `wireguard`. */
export const X25519PublicKey = z.object({ kty: z.literal("OKP"), crv: z.literal("X25519"), x: Base64Url32 });

/** P-256 public key (RFC 7518 §6.2): node `overlay`. */
export const P256PublicKey = z.object({
  kty: z.literal("EC"),
  crv: z.literal("P-256"),
  x: Base64Url32,
  y: Base64Url32,
});

/** The public halves of a node's three keys. */
export const NodeKeys = z.object({ auth: Ed25519PublicKey, overlay: P256PublicKey, wireguard: X25519PublicKey });
export type NodeKeys = z.infer<typeof NodeKeys>;

/** The thumbprints (RFC 7638, SHA-256) of a node's three keys. */
export const NodeThumbprints = z.object({ auth: Base64Url32, overlay: Base64Url32, wireguard: Base64Url32 });
export type NodeThumbprints = z.infer<typeof NodeThumbprints>;

type PublicJwk = Ed25519PublicKey | z.infer<typeof X25519PublicKey> | z.infer<typeof P256PublicKey>;

/** RFC 7638 thumbprint, SHA-256, base64url. */
export function thumbprint(key: PublicJwk): Promise<string> {
  return calculateJwkThumbprint(key, "sha256");
}

export async function thumbprintsOf(keys: NodeKeys): Promise<NodeThumbprints> {
  const [auth, overlay, wireguard] = await Promise.all([
    thumbprint(keys.auth),
    thumbprint(keys.overlay),
    thumbprint(keys.wireguard),
  ]);
  return { auth, overlay, wireguard };
}
