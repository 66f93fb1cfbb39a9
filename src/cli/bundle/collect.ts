import { toError } from "../../errors.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import type { Scrub } from "../../lib/text/scrub.ts";
import type { MissingPart, Part, PartSpec, PartTools } from "./part.ts";

const PART_MS = 30_000;

/** Makes all parts concurrently, each with a time limit; reports each part that failed, with the reason. */
export async function collect(
  specs: readonly PartSpec[],
  tools: PartTools,
  scrub: Scrub,
  partMs = PART_MS,
): Promise<{ readonly parts: readonly Part[]; readonly missing: readonly MissingPart[] }> {
  const made = await Promise.all(specs.map((spec) => makePart(spec, tools, scrub, partMs)));
  tools.signal.throwIfAborted();
  return {
    parts: made.flatMap((one) => ("text" in one ? [one] : [])),
    missing: made.flatMap((one) => ("reason" in one ? [one] : [])),
  };
}

async function makePart(spec: PartSpec, tools: PartTools, scrub: Scrub, partMs: number): Promise<Part | MissingPart> {
  const signal = withinTime(tools.signal, partMs);
  const late = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(toError(signal.reason)), { once: true });
  });
  const make = async (): Promise<string> => spec.make({ ...tools, signal });
  const { name, about } = spec;
  try {
    const text = scrub(await Promise.race([make(), late]));
    return { name, about, isLog: spec.isLog === true, text, cutBytes: 0 };
  } catch (thrown) {
    const error = toError(thrown);
    const reason = error.name === "TimeoutError" ? `timed out after ${partMs / 1000} s` : error.message;
    return { name, reason: scrub(reason) };
  }
}
