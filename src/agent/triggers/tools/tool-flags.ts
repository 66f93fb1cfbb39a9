import { isIP } from "node:net";
import { z } from "zod";
import { LinkName } from "../../../protocol/values/values.ts";

/** Argument of a flag: none, a number within limits, an IP address, or a link name. */
export type FlagKind =
  | { readonly takes: "nothing" | "address" | "link" }
  | { readonly takes: "whole" | "number"; readonly low: number; readonly high: number };

/** The harmless flags of a tool. Any other is refused. */
export type AllowedFlags = ReadonlyMap<string, FlagKind>;

/** Entries for flags without an argument. */
export function plainFlags(...names: readonly string[]): readonly (readonly [string, FlagKind])[] {
  return names.map((name) => [name, { takes: "nothing" }]);
}

/** Entry for a flag with a number. */
export function numberFlag(
  name: string,
  low: number,
  high: number,
  takes: "whole" | "number" = "whole",
): readonly [string, FlagKind] {
  return [name, { takes, low, high }];
}

const MAX_SHOWN = 64;

/** Parses flags separated by spaces; `aliases` are other spellings of allowed flags. */
export function flagList(allowed: AllowedFlags, aliases: ReadonlyMap<string, string> = new Map()) {
  return z
    .string()
    .max(256)
    .transform((text, context) => {
      const flags = text
        .split(" ")
        .filter((token) => token !== "")
        .map((token) => aliases.get(token) ?? token);
      const problem = findProblem(flags, allowed);
      if (problem !== undefined) context.addIssue({ code: "custom", message: problem });
      return flags;
    });
}

/** Returns why flags are invalid, or undefined. */
function findProblem(flags: readonly string[], allowed: AllowedFlags): string | undefined {
  const seen = new Set<string>();
  for (let at = 0; at < flags.length; at += 1) {
    const flag = flags[at] ?? "";
    if (seen.has(flag)) return `the flag ${flag} is given twice`;
    const kind = allowed.get(flag);
    if (kind === undefined) return `the flag ${JSON.stringify(flag.slice(0, MAX_SHOWN))} is not allowed`;
    seen.add(flag);
    if (kind.takes === "nothing") continue;
    at += 1;
    const problem = valueProblem(flag, kind, flags[at] ?? "");
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function valueProblem(flag: string, kind: FlagKind, value: string): string | undefined {
  switch (kind.takes) {
    case "nothing":
      return undefined;
    case "address":
      return isIP(value) === 0 || value.includes("%") ? `${flag} needs an IP address` : undefined;
    case "link":
      return LinkName.safeParse(value).success ? undefined : `${flag} needs the name of an interface`;
    case "whole":
      return isWithin(value, /^\d{1,5}$/, kind) ? undefined : `${flag} needs a whole number from ${range(kind)}`;
    case "number":
      return isWithin(value, /^\d{1,5}(\.\d{1,3})?$/, kind) ? undefined : `${flag} needs a number from ${range(kind)}`;
  }
}

interface Bounds {
  readonly low: number;
  readonly high: number;
}

function isWithin(text: string, form: RegExp, { low, high }: Bounds): boolean {
  return form.test(text) && Number(text) >= low && Number(text) <= high;
}

function range({ low, high }: Bounds): string {
  return `${low} to ${high}`;
}
