import { isDeepStrictEqual } from "node:util";
import type { OverlayListener, OverlayService } from "./overlay.ts";

/** Flows that a change of a listener ends: none, those whose source is no longer allowed, or all. */
export type Dropped = "none" | "forbidden" | "all";

/** Returns which flows end when a listener changes. Pure. */
export function droppedBy(from: OverlayListener, to: OverlayListener): Dropped {
  const isSame = from.protocol === to.protocol && from.application === to.application && from.port === to.port;
  if (!isSame || !isDeepStrictEqual(from.target, to.target)) return "all";
  return isDeepStrictEqual(from.sources, to.sources) ? "none" : "forbidden";
}

/** Reports whether flows to a service survive its change: if the target stays the same. Pure. */
export function leadsToSame(a: OverlayService, b: OverlayService): boolean {
  const isSame = a.protocol === b.protocol && a.application === b.application;
  return isSame && a.host === b.host && a.port === b.port;
}
