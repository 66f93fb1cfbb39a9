import { InputError } from "../errors.ts";
import { nearest } from "../lib/text/nearest.ts";
import type { Verb } from "./frame/verb.ts";
import { verbs } from "./verbs.ts";

/**
 * The verb of this name.
 * @throws {InputError} `usage` with the nearest name.
 */
export function findVerb(name: string): Verb {
  const found = verbs.find((verb) => verb.name === name);
  if (found !== undefined) return found;
  const near = nearest(
    name,
    verbs.map((verb) => verb.name),
  );
  const hint = near === undefined ? "'holdfast help' shows them all" : `did you mean ${near}?`;
  throw new InputError("usage", `there is no verb '${name}': ${hint}`);
}
