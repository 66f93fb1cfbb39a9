import { HostError } from "../../../errors.ts";

/** Conditions of the machine that keep a container from running and have a code of their own in `why`. */
const NAMED: ReadonlySet<string> = new Set(["disk-full", "image-platform", "address-conflict"]);
const NO_SPACE = /no space left on device|disk quota exceeded/i;

/** The code of the condition of the machine that kept a container from running; undefined for any other failure. */
export function failureCode(error: unknown): string | undefined {
  if (!(error instanceof HostError)) return undefined;
  if (NO_SPACE.test(error.message)) return "disk-full";
  return NAMED.has(error.code) ? error.code : undefined;
}
