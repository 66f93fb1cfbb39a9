import type { PullProgress } from "../../../host/engine/engine.ts";
import { formatBytes } from "../../../lib/text/durations.ts";

/** What comes between the lines of a pull and the output of the program. */
export const SEPARATOR = "----------\n";

const MAX_LAYERS = 1000;

/** Makes lines of the progress of a pull: one when a layer begins, with its size where that is known, and one when it is there. */
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
