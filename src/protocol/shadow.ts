import { z } from "zod";

/** A shadow value: text by default; numbers for times, versions and quantities; an object for `features` alone. */
export const ShadowValue = z.union([
  z.string().max(4096),
  z.number(),
  z.boolean(),
  z.record(z.string().max(128), z.union([z.string().max(4096), z.number(), z.boolean()])),
]);
export type ShadowValue = z.infer<typeof ShadowValue>;

/** Flat map of reported keys; a key may contain dots, and an interface name inside it too. */
export const ShadowMap = z.record(z.string().min(1).max(128), ShadowValue);
export type ShadowMap = z.infer<typeof ShadowMap>;

/** Largest reported shadow, as JSON. */
export const SHADOW_MAX_BYTES = 64 * 1024;
