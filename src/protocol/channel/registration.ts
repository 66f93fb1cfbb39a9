import { z } from "zod";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { KeysEnvelopes } from "./keys-chain.ts";
import { Jws, Text64, Text1024 } from "../values/values.ts";

/** Bounds of the body of a registration, and of its answer. */
export const REGISTRATION_LIMITS: JsonLimits = { maxBytes: 32 * 1024, maxDepth: 4 };
export const REGISTRATION_ANSWER_LIMITS: JsonLimits = { maxBytes: 1024 * 1024, maxDepth: 8 };

/** Body of `POST /agent/v1/register`. */
export const RegistrationBody = z.object({ register: Jws.max(REGISTRATION_LIMITS.maxBytes) });

/** Answer to it: the node's identity, signed, and every version of the keys document that the license's root leads to. */
export const RegistrationAnswer = z.object({ registered: Jws.max(16_384), keys: KeysEnvelopes });
export type RegistrationAnswer = z.infer<typeof RegistrationAnswer>;

/** Body of an HTTP answer below `/agent/v1/` that is an error. */
export const HttpRefusal = z.object({ error: Text1024, code: Text64, details: z.unknown().optional() });
