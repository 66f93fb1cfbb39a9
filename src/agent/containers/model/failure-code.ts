import { HostError } from "../../../errors.ts";

/** Conditions of the machine that keep a container from running, with their own code in `why`. */
const NAMED: ReadonlySet<string> = new Set(["disk-full", "image-platform", "address-conflict"]);
const NO_SPACE = /no space left on device|disk quota exceeded/i;

/** Returns the code of the machine's condition that keeps a container from running; undefined for other failures. */
export function failureCode(error: unknown): string | undefined {
  if (!(error instanceof HostError)) return undefined;
  if (NO_SPACE.test(error.message)) return "disk-full";
  return NAMED.has(error.code) ? error.code : undefined;
}
