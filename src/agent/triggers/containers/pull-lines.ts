import type { PullProgress } from "../../../host/engine/engine.ts";
import { formatBytes } from "../../../lib/text/durations.ts";

/** Separates the lines of a pull from the output of the program. */
export const SEPARATOR = "----------\n";

const MAX_LAYERS = 1000;

/** Formats the progress of a pull: a line when a layer starts, with its size if known, and one when it is complete. */
export function pullLines(): (progress: PullProgress) => string | undefined {
  const layers = new Map<string, "begun" | "there">();
  return ({ layer, status, total }) => {
    if (layer === undefined) return undefined;
    const known = layers.get(layer);
    const isEnd = status === "Pull complete" || status === "Already exists";
    const isBegin = status === "Downloading" || status === "Download complete" || status === "Extracting";
    if (known === "there" || (known === undefined && layers.size >= MAX_LAYERS)) return undefined;
    if (isEnd) {
      layers.set(layer, "there");
      return `${layer}: ${status === "Already exists" ? "already there" : "complete"}\n`;
    }
    if (!isBegin || known === "begun") return undefined;
    layers.set(layer, "begun");
    return `${layer}: pulling${total === undefined || total === 0 ? "" : ` ${formatBytes(total)}`}\n`;
  };
}
