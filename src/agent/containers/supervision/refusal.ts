import { z } from "zod";

/** A successor that could not start after its predecessor was stopped; not retried until something changes. */
export const Refusal = z.object({
  /** Hashes of its definition and limits, and its image. */
  hash: z.string(),
  limits: z.string(),
  imageId: z.string(),
  reason: z.string(),
  /** Code of the machine's condition, if that is the reason. */
  code: z.string().optional(),
});
export type Refusal = z.infer<typeof Refusal>;

/** Parses a stored refusal; undefined if absent or invalid. */
export function refusalOf(text: string | undefined): Refusal | undefined {
  if (text === undefined) return undefined;
  try {
    return Refusal.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
