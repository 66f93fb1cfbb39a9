import { z } from "zod";
import { isOverlap, type VolumeShape } from "./volume-paths.ts";

/** What is remembered of a volume; times in Unix milliseconds. */
export interface VolumeRecord {
  readonly name: string;
  readonly detail: string;
  readonly createdAt: number;
  readonly quarantinedAt: number | undefined;
}

/** Where it is remembered. */
export interface VolumeRecords {
  readonly volumes: ReadonlyMap<string, VolumeRecord>;
  putVolume(row: VolumeRecord): void;
  dropVolume(name: string): void;
}

const Detail = z.object({
  encrypted: z.boolean(),
  parts: z.array(z.string().regex(/^(?!\.\.?$)[^/\0]+$/)).min(1),
});

/** The detail of a record. */
export const detailOf = ({ encrypted, parts }: VolumeShape): string => JSON.stringify({ encrypted, parts });

/** Undefined when it cannot be read. */
export function parseDetail(text: string): VolumeShape | undefined {
  const parsed = Detail.safeParse(parseJson(text));
  return parsed.success ? parsed.data : undefined;
}

/** The name of a volume whose content is at a place of the data store, in it, or around it; those put away do not count. Pure. */
export function volumeAt(records: Iterable<VolumeRecord>, parts: readonly string[]): string | undefined {
  for (const { name, detail, quarantinedAt } of records) {
    const shape = quarantinedAt === undefined ? parseDetail(detail) : undefined;
    if (shape !== undefined && isOverlap(shape, { ...shape, parts })) return name;
  }
  return undefined;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
