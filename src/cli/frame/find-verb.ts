import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import type { Verb, VerbList, VerbSpec } from "./verb.ts";

/**
 * Loads the verb of this name.
 * @throws {InputError} `usage` with the nearest name.
 */
export function findVerb(verbs: VerbList, name: string): Promise<VerbSpec | Verb> {
  const load = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (load !== undefined) return load();
  const near = nearest(name, Object.keys(verbs));
  const hint = near === undefined ? "'holdfast help' lists the verbs" : `did you mean ${near}?`;
  throw new InputError("usage", `there is no verb '${name}': ${hint}`);
}

/** Loads every verb, in the order of the list. */
export function allVerbs(verbs: VerbList): Promise<readonly (VerbSpec | Verb)[]> {
  return Promise.all(Object.values(verbs).map((load) => load()));
}

/** Reports whether the verb runs inside the command line. */
export function isRunnable(verb: VerbSpec | Verb): verb is Verb {
  return "run" in verb;
}
