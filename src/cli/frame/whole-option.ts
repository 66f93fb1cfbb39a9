import { InputError } from "../../errors.ts";
import type { Call } from "./verb.ts";

/** Returns the integer value of an option; undefined without it. @throws {InputError} `usage` for anything else. */
export function wholeOption(
  { values }: Pick<Call, "values">,
  name: string,
  low: number,
  high: number,
): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = typeof text === "string" && /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= low && value <= high) return value;
  throw new InputError("usage", `--${name} needs a whole number from ${low} to ${high}, not ${String(text)}`);
}
