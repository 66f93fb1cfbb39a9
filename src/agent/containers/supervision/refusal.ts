import { z } from "zod";

/** A successor that could not be started when what runs was stopped for it: not tried again as long as nothing has changed. */
export const Refusal = z.object({
  /** Of its definition, of its limits, and of its image. */
  hash: z.string(),
  limits: z.string(),
  imageId: z.string(),
  reason: z.string(),
  /** The code of the condition of the machine, if that is the reason. */
  code: z.string().optional(),
});
export type Refusal = z.infer<typeof Refusal>;

/** What the ledger has of one; undefined where there is none, or it cannot be read. */
export function refusalOf(text: string | undefined): Refusal | undefined {
  if (text === undefined) return undefined;
  try {
    return Refusal.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
