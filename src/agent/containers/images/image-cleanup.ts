import type { ImageSummary } from "../../../host/engine/engine.ts";
import type { DiskSpace } from "../../../host/files/files.ts";
import type { ImageRow } from "../model/ledger.ts";

const MIN_FREE_RATIO = 0.15;
const MIN_AGE_MS = 24 * 3_600_000;

/** Reports whether the images' disk is so full that unused images are removed. */
export function isShort(space: DiskSpace | undefined): boolean {
  return space !== undefined && space.totalBytes > 0 && space.freeBytes / space.totalBytes < MIN_FREE_RATIO;
}

/**
 * Returns the removable images, least recently used first: pulled by this node, still in the engine, used by no definition and no
 * container, unused for a day, and without tags of others. Pure.
 */
export function unusedImages(
  rows: Iterable<ImageRow>,
  images: readonly ImageSummary[],
  used: { readonly references: ReadonlySet<string>; readonly ids: ReadonlySet<string> },
  now: number,
): readonly ImageRow[] {
  const there = new Map(images.map((image) => [image.id, image]));
  return [...rows]
    .filter(({ id, reference, usedAt }) => {
      const image = there.get(id);
      if (image === undefined || used.ids.has(id) || now - usedAt < MIN_AGE_MS) return false;
      // Removing an image removes all its tags.
      if (image.tags.some((tag) => tag !== reference)) return false;
      return ![...image.tags, ...image.digests].some((name) => used.references.has(name));
    })
    .toSorted((one, other) => one.usedAt - other.usedAt);
}
