import { isDeepStrictEqual } from "node:util";
import type { OverlayListener, OverlayService } from "./overlay.ts";

/** Which of a listener's flows a change ends: none, those whose source may no longer connect, or all. */
export type Dropped = "none" | "forbidden" | "all";

/** Which flows end when a listener becomes another. Pure. */
export function droppedBy(from: OverlayListener, to: OverlayListener): Dropped {
  const isSame = from.protocol === to.protocol && from.application === to.application && from.port === to.port;
  if (!isSame || !isDeepStrictEqual(from.target, to.target)) return "all";
  return isDeepStrictEqual(from.sources, to.sources) ? "none" : "forbidden";
}

/** Whether flows to a service outlive its change: they do where it leads to the same place. Pure. */
export function leadsToSame(a: OverlayService, b: OverlayService): boolean {
  const isSame = a.protocol === b.protocol && a.application === b.application;
  return isSame && a.host === b.host && a.port === b.port;
}
