import { z } from "zod";
import { REGISTRATION_LIMITS } from "./registration.ts";
import { Base64Url32, Jws, Text64, Uid } from "../values/values.ts";

/** Letters and digits of activation codes, without look-alikes. */
export const CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
export const CODE_LENGTH = 6;

/** A code as typed by a person: in any case, with optional spaces or dashes. */
export const ActivationCode = z
  .string()
  .max(32)
  .transform((text) => text.toUpperCase().replaceAll(/[\s-]/g, ""))
  .pipe(
    z.string().regex(new RegExp(`^[${CODE_ALPHABET}]{${CODE_LENGTH}}$`), `must be ${CODE_LENGTH} letters and digits`),
  );

/** Body of `POST /agent/v1/activation`. */
export const ActivationBody = z.object({ activation: Jws.max(REGISTRATION_LIMITS.maxBytes) });

const License = Jws.max(8192);

/** The answer: the code to show, or the license once somebody has entered the code. */
export const ActivationAnswer = z.union([
  z.object({
    state: z.literal("pending"),
    code: z.string().max(32),
    expiresInSeconds: z.int().min(0).max(86_400),
    pollSeconds: z.int().min(1).max(300),
  }),
  z.object({ state: z.literal("approved"), license: License }),
]);
export type ActivationAnswer = z.infer<typeof ActivationAnswer>;

/** Body of `POST /agent/v1/token`. */
export const TokenBody = z.object({ exchange: Jws.max(REGISTRATION_LIMITS.maxBytes) });
/** The answer: a license for the key that asked. */
export const TokenAnswer = z.object({ license: License });

const TOKEN_PREFIX = "hf-agent-";
export const AGENT_TOKEN_MAX_BYTES = 2048;

/** The content of an agent token: the control plane, how to verify it, and the secret. */
export const AgentToken = z.object({
  iss: z
    .string()
    .max(512)
    .regex(/^https?:\/\/[^/?#\s@]+$/),
  root: Base64Url32,
  spki: z.array(Base64Url32).max(8),
  id: Uid,
  secret: Base64Url32,
});
export type AgentToken = z.infer<typeof AgentToken>;

/** Formats a token as text. */
export function agentTokenText(token: AgentToken): string {
  return `${TOKEN_PREFIX}${Buffer.from(JSON.stringify(token)).toString("base64url")}`;
}

/** Reads the text of a token; undefined if it is none, or truncated. */
export function readAgentToken(text: string): AgentToken | undefined {
  const body = text.startsWith(TOKEN_PREFIX) ? text.slice(TOKEN_PREFIX.length) : "";
  if (text.length > AGENT_TOKEN_MAX_BYTES || !/^[A-Za-z0-9_-]+$/.test(body)) return undefined;
  try {
    return AgentToken.safeParse(JSON.parse(Buffer.from(body, "base64url").toString("utf8"))).data;
  } catch {
    return undefined;
  }
}

/** A request for a license: by a code that an operator enters, or by an agent token. */
export const ActivationRequest = z.union([
  z.object({ url: AgentToken.shape.iss, pins: z.array(Base64Url32).max(8) }),
  z.object({ token: z.string().min(1).max(AGENT_TOKEN_MAX_BYTES) }),
]);
export type ActivationRequest = z.infer<typeof ActivationRequest>;

/** The progress of a request: the code to show, with the thumbprint of its key, or the license. */
export const ActivationStep = z.union([
  z.object({
    state: z.literal("pending"),
    code: Text64,
    key: Base64Url32,
    expiresInSeconds: z.int().min(0),
    pollSeconds: z.int().min(1).max(300),
  }),
  z.object({ state: z.literal("approved"), license: License }),
]);
export type ActivationStep = z.infer<typeof ActivationStep>;
