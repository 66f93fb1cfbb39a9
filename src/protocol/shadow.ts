import { z } from "zod";

/** A shadow value: text by default; numbers for times, versions and quantities; an object for `features` alone. */
export const ShadowValue = z.union([
  z.string().max(4096),
  z.number(),
  z.boolean(),
  z.record(z.string().max(128), z.union([z.string().max(4096), z.number(), z.boolean()])),
]);
export type ShadowValue = z.infer<typeof ShadowValue>;

const MAX_KEY = 128;

/** Flat map of reported keys; a key may contain dots, and an interface name inside it too. */
export const ShadowMap = z
  .object({})
  .catchall(ShadowValue)
  .check(({ value, issues }) => {
    for (const key of Object.keys(value)) {
      if (key.length >= 1 && key.length <= MAX_KEY) continue;
      issues.push({ code: "custom", message: `a key has 1 to ${MAX_KEY} characters`, path: [key], input: value });
    }
  })
  .meta({ propertyNames: { type: "string", minLength: 1, maxLength: MAX_KEY } });
export type ShadowMap = z.infer<typeof ShadowMap>;

/** Largest reported shadow, as JSON. */
export const SHADOW_MAX_BYTES = 64 * 1024;
