import { z } from "zod";
import { isOverlap, type VolumeShape } from "./volume-paths.ts";

/** Record of a volume; times in Unix milliseconds. */
export interface VolumeRecord {
  readonly name: string;
  readonly detail: string;
  readonly createdAt: number;
  readonly quarantinedAt: number | undefined;
}

/** Storage of the record. */
export interface VolumeRecords {
  readonly volumes: ReadonlyMap<string, VolumeRecord>;
  putVolume(row: VolumeRecord): void;
  dropVolume(name: string): void;
}

const Detail = z.object({
  encrypted: z.boolean(),
  parts: z.array(z.string().regex(/^(?!\.\.?$)[^/\0]+$/)).min(1),
});

/** Serializes a record's details. */
export const detailOf = ({ encrypted, parts }: VolumeShape): string => JSON.stringify({ encrypted, parts });

/** Parses a record's details; undefined if invalid. */
export function parseDetail(text: string): VolumeShape | undefined {
  const parsed = Detail.safeParse(parseJson(text));
  return parsed.success ? parsed.data : undefined;
}

/** Returns the name of a volume that overlaps a place of the data store; quarantined ones do not count. Pure. */
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
