import { z } from "zod";
import { Ed25519PublicKey, NodeKeys, NodeThumbprints } from "../values/keys.ts";
import { ReleaseClaims } from "./release.ts";
import {
  Base64Url32,
  EventName,
  Fqdn,
  JsonObject,
  Jws,
  NodeName,
  NodeType,
  Text64,
  Text128,
  Uid,
  UnixSeconds,
  Version,
} from "../values/values.ts";

/** An origin such as `https://cp.example.net:8480`, without path or trailing slash. */
export const Origin = z
  .string()
  .max(512)
  .regex(/^https?:\/\/[^/?#\s@]+$/, "must be an http or https origin without a path");

export const License = z.object({
  iss: Origin,
  jti: Uid,
  name: NodeName,
  domain: Fqdn,
  org: z.uuid(),
  type: NodeType,
  iat: UnixSeconds,
  exp: UnixSeconds,
  root: Base64Url32,
  spki: z.array(Base64Url32).max(8),
  cnf: z.object({ jkt: Base64Url32 }).optional(),
});
export type License = z.infer<typeof License>;

/** Facts about the machine that a node sends when it registers. */
export const Device = z.object({
  vendor: Text64,
  model: Text128,
  mac: z.string().max(32),
  wan: z.string().max(32).optional(),
  lan: z.array(z.string().max(32)).max(64).optional(),
  wan_type: z.string().max(32).optional(),
});
export type Device = z.infer<typeof Device>;

export const RegisterClaims = z.object({
  aud: Origin,
  nonce: Base64Url32,
  license: Jws.max(8192),
  keys: NodeKeys,
  device: Device,
});
export type RegisterClaims = z.infer<typeof RegisterClaims>;

/** Claims of a machine without a license that asks for a code and polls for its license. */
export const ActivationClaims = z.object({
  aud: Origin,
  /** Greater than in every earlier message of the key. */
  seq: Version,
  keys: NodeKeys,
  device: Device,
});
export type ActivationClaims = z.infer<typeof ActivationClaims>;

/** Claims of an agent that exchanges a token for a license. */
export const TokenUseClaims = z.object({
  aud: Origin,
  id: Uid,
  secret: Base64Url32,
  keys: NodeKeys,
});
export type TokenUseClaims = z.infer<typeof TokenUseClaims>;

export const NodeIdentity = z.object({
  uid: Uid,
  name: NodeName,
  fqdn: Fqdn,
  domain: Fqdn,
  org: z.uuid(),
  type: NodeType,
  session: z
    .string()
    .max(512)
    .regex(/^wss?:\/\/[^\s]+$/, "must be a ws or wss address"),
});
export type NodeIdentity = z.infer<typeof NodeIdentity>;

export const RegisteredClaims = z.object({
  iss: Origin,
  aud: Uid,
  nonce: Base64Url32,
  iat: UnixSeconds,
  node: NodeIdentity,
  cnf: NodeThumbprints,
});
export type RegisteredClaims = z.infer<typeof RegisteredClaims>;

/** Names the online keys and the TLS pins of a control plane; signed by `root`, so it has no audience and every node gets the same. */
export const KeysClaims = z.object({
  name: z.literal("keys"),
  version: Version.min(1),
  iat: UnixSeconds,
  root: Ed25519PublicKey,
  signing: z.array(Ed25519PublicKey).min(1).max(8),
  spki: z.array(Base64Url32).max(8),
});
export type KeysClaims = z.infer<typeof KeysClaims>;

/** Versions of the documents of one side; zero means none. */
export const DocumentVersions = z.object({
  keys: Version,
  node: Version,
  cluster: Version,
  domain: Version,
});
export type DocumentVersions = z.infer<typeof DocumentVersions>;

export const NodeProofClaims = z.object({
  iss: Uid,
  aud: Origin,
  nonce: Base64Url32,
  cnonce: Base64Url32,
  n: z.int().min(1),
  bootId: z.uuid(),
  version: Text64,
  protocol: z.int().min(1),
  have: DocumentVersions,
  tls: Base64Url32.optional(),
});
export type NodeProofClaims = z.infer<typeof NodeProofClaims>;

export const ServerProofClaims = z.object({
  iss: Origin,
  aud: Uid,
  nonce: Base64Url32,
  sid: z.uuid(),
  iat: UnixSeconds,
  versions: DocumentVersions,
  tls: z.array(Base64Url32).max(8).optional(),
});
export type ServerProofClaims = z.infer<typeof ServerProofClaims>;

export const DocumentName = z.enum(["node", "cluster", "domain"]);
export type DocumentName = z.infer<typeof DocumentName>;

export const DocumentClaims = z.object({
  iss: Origin,
  aud: Uid,
  name: DocumentName,
  sub: z.string().min(1).max(253),
  version: Version.min(1),
  iat: UnixSeconds,
  body: JsonObject,
});
export type DocumentClaims = z.infer<typeof DocumentClaims>;

export const TriggerClaims = z.object({
  iss: Origin,
  aud: Uid,
  sid: z.uuid(),
  jti: z.uuid(),
  event: EventName,
  body: z.unknown(),
  wait: z.boolean(),
  /** Whether output is streamed; then `wait` is false. */
  watched: z.boolean().optional(),
  user: z.string().max(320),
  deadlineMs: z.int().min(1).max(3_600_000),
  iat: UnixSeconds,
  exp: UnixSeconds,
});
export type TriggerClaims = z.infer<typeof TriggerClaims>;

/** Orders a node to dial for one stream; strict, because an unknown claim could be a restriction. */
export const StreamClaims = z.strictObject({
  iss: Origin,
  aud: Uid,
  sid: z.uuid(),
  jti: z.uuid(),
  kind: z.string().regex(/^[a-z][a-z0-9-]{0,31}$/),
  /** Parameters of the stream's kind. */
  params: JsonObject,
  user: z.string().max(320),
  /** SHA-256 of the one-time ticket. */
  th: Base64Url32,
  iat: UnixSeconds,
  exp: UnixSeconds,
});
export type StreamClaims = z.infer<typeof StreamClaims>;

export const DeletedClaims = z.object({ iss: Origin, aud: Uid, nonce: Base64Url32, iat: UnixSeconds });
export type DeletedClaims = z.infer<typeof DeletedClaims>;

/** The claims of each `typ`; a verifier names one beforehand and accepts no other (RFC 8725 §3.11). */
export const claimsByType = {
  "holdfast-license+jwt": License,
  "holdfast-register+jwt": RegisterClaims,
  "holdfast-registered+jwt": RegisteredClaims,
  "holdfast-activation+jwt": ActivationClaims,
  "holdfast-token-use+jwt": TokenUseClaims,
  "holdfast-node-proof+jwt": NodeProofClaims,
  "holdfast-server-proof+jwt": ServerProofClaims,
  "holdfast-document+jwt": DocumentClaims,
  "holdfast-keys+jwt": KeysClaims,
  "holdfast-trigger+jwt": TriggerClaims,
  "holdfast-stream+jwt": StreamClaims,
  "holdfast-deleted+jwt": DeletedClaims,
  "holdfast-release+jwt": ReleaseClaims,
} as const;
export type ClaimsByType = { readonly [T in keyof typeof claimsByType]: z.infer<(typeof claimsByType)[T]> };
export type JwsType = keyof ClaimsByType;
